"""Read the calls of a run: what was called, in which order, inside of which module, with which values."""
