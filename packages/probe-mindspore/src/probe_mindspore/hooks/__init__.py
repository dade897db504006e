"""Watch MindSpore's Cells (L0), PyNative autograd and collectives with hooks."""
