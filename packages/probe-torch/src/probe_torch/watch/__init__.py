"""Watch a run of torch (task `watch`): the norms of what its optimizers get, hold and change."""
