"""Show a run that is watched while it goes on (task `watch`)."""
