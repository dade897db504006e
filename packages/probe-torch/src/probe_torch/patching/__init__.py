"""Replace the functions of torch that are recorded (L1) with wrappers."""
