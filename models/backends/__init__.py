"""The only place with solve calls, solver options and solver statuses."""
