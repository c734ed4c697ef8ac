"""One group: the period its pins allow, its schedule, and what it costs."""
