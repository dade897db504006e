"""Find the model and the steps of a training loop that says nothing of Probe."""
