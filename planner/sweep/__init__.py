"""``planner sweep``: many replays in parallel, resumable, on one machine or a cluster."""
