"""``planner plan``: a trace under several policies, as tables, documents and files."""
