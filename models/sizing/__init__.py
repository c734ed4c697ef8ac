"""What to own and what to rent: the MILP of sizing, and fleets that must keep jobs waiting."""
