"""Plans by loads alone, as the moves of local search see them, and their repair."""
