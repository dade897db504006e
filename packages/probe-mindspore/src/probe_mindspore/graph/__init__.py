"""Record Cells and gradients inside compiled graphs (GRAPH_MODE and `mindspore.jit`)."""
