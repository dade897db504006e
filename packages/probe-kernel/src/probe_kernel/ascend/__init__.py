"""Dump with Ascend's own dumper: write ACL's settings, switch torch_npu, and watch for one API call.

Nothing here ever ran on Ascend: the tests have a stand-in for torch_npu (tests/kernel/recorded_npu.py). Only
`probe_kernel.torch` and `probe_kernel.level2` use it.
"""
