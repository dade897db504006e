"""Open the session of a debugger of torch and its steps, at every level."""
