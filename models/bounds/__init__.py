"""Lower bounds of the cost of any valid plan, and the column generation they need."""
