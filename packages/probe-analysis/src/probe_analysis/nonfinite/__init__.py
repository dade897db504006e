"""Find the call that made the first number that is not finite, and the numbers that are close to it."""
