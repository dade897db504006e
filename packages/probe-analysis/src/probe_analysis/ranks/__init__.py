"""Find what ranks that should agree do not agree on: weights, reduced gradients, replicated tensors, collectives."""
