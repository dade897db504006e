"""Show a dump, or two and how they differ, as one HTML page that needs no network."""
