"""Run the commands that this package adds to ``probe``: diff, export, nan and others."""
