"""Follow one quantity over steps, layers and ranks, and put what changed most first."""
