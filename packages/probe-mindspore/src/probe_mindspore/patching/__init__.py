"""Replace the functions of MindSpore that are recorded (L1) with wrappers."""
