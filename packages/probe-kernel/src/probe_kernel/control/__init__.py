"""MindSpore's kernel dump: what to dump, whether it is allowed, the control file, the run."""

__all__: list[str] = []
