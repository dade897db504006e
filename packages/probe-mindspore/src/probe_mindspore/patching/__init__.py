"""Functions of MindSpore (L1): which are recorded, and what stands in for them."""

__all__: list[str] = []
