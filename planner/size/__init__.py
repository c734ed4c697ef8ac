"""``planner size``: how many nodes to own, to rent, at what price, and what changes that."""
