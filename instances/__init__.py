"""What the problem is and what counts as a valid answer: data, plans and the checker."""
