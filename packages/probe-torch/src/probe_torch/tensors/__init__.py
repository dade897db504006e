"""Describe tensors of torch as JSON with numbers and files, and reuse those where that is safe."""
