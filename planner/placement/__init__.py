"""Where an arriving job goes: the placer, its state, and local search from its plan."""
