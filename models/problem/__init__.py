"""The snapshot problem: jobs, groups and options in, a result out."""
