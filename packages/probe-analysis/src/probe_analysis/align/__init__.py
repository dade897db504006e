"""Find which call of one run is which call of another, by name and, where names differ, by structure."""
