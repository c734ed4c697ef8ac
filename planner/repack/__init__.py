"""``planner repack``: which running jobs to move now, as a dry run, tables and files."""
