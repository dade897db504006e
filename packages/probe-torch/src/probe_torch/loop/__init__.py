"""See what trains in this process: models, optimizers, forwards and updates."""
