"""Control MindSpore's kernel dump: its description and checks, the control file, the run and its outcome."""
