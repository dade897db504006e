"""Watch torch's modules (L0), autograd, optimizers and collectives with hooks."""
