"""A trace run through a policy: events, queues for a fixed fleet, failures, demand."""
