"""Compare two runs call by call, and name the first call that made a difference."""
