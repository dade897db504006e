"""Use Ascend's own dumper: ACL's settings, torch_npu, one API call at a time."""

__all__: list[str] = []
