"""Exact methods: exhaustive search, MILP, CP-SAT and set partitioning."""
