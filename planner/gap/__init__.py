"""``planner gap``: every moment of a replay against its least cost."""
