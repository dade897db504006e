"""Describe tensors of MindSpore as JSON with numbers and files."""
