"""Why jobs cannot be one group, or a snapshot has no plan, and what would cure it."""
