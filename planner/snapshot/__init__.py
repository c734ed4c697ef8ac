"""``planner snapshot``: the least-cost plan of one moment, and Gantt charts of groups."""
