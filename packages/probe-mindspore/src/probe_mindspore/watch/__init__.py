"""Watch a run of MindSpore (task `watch`): the norms of what its optimizers get, hold and change."""
