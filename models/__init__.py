"""How to optimise a problem of :mod:`instances`: models, methods, bounds and solvers."""
