"""The dumps that `bench.alike` makes in two checkouts; the scripts run by path, in the environment of a framework."""
