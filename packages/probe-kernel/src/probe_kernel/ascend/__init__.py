"""Dump with Ascend's own dumper: write ACL's settings, switch torch_npu, and watch for one API call."""
