"""``planner simulate``: sampled lengths, failures, long-tail migration and drift."""
