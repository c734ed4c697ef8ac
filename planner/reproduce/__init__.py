"""``planner reproduce``: published figures beside ours."""
