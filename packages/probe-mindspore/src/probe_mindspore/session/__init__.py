"""Open the session of a debugger of MindSpore and its steps, at every level."""
