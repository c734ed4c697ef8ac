"""The report: one HTML page that a planner can hand on, made from the results of the commands."""
