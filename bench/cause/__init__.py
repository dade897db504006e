"""Make pairs of runs, honest ones and ones with a planted fault, and count whose first cause `probe diff` names."""
