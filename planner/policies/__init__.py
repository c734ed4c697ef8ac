"""What a policy is, and each one: the placer's, those that move jobs, baselines, results."""
