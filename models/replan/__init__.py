"""Running groups planned anew, where every move has its price."""
