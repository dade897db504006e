"""Define a key of the configuration, with its check, and list the keys that have no effect.

They are msprobe's keys and sections that Probe does not follow, and the keys that mean nothing under task `watch`,
which records norms in every step, and no calls.
"""

from collections.abc import Mapping
from typing import Any

import attrs

from .value_checks import Check


@attrs.frozen
class Key:
    """One key of the configuration.

    says: the values it takes and what they mean, as in the table of spec/config.md.
    check: returns a value as Probe keeps it, and its problems.
    section: whether it belongs in the section of the task; it may also be at the top.
    ours: whether it is Probe's own; False for a key of msprobe.
    fixed: whether it cannot change in a running job (`reload`).
    kernel_check: the check at level "L2", where that differs.
    kernel_only: whether it is a key at level "L2" alone.
    """

    says: str
    check: Check
    section: bool = False
    ours: bool = False
    fixed: bool = False
    kernel_check: Check | None = None
    kernel_only: bool = False


def key(default: Any, says: str, check: Check, *, converter: Any = None, **more: Any) -> Any:
    """Return a field of a class of settings that is a key. more: other fields of `Key`."""
    return attrs.field(default=default, converter=converter, metadata={"key": Key(says, check, **more)})


def own_key(default: Any, says: str, check: Check, **more: Any) -> Any:
    """Return a field that is a key of Probe's own."""
    return key(default, says, check, ours=True, **more)


def declared_keys(settings: type) -> Mapping[str, Key]:
    """Return the keys that a class of settings declares, by name."""
    return {field.name: field.metadata["key"] for field in attrs.fields(settings) if "key" in field.metadata}


CALL_LEVELS = ("L0", "L1", "mix")
"""The levels that record calls, which may become one another in a running job."""

IDLE_SECTIONS: dict[str, str] = {
    "run_ut": "Dump with task tensor; then `probe check DIR` runs each recorded call again in float64.",
    "acc_check": "Dump with task tensor; then `probe check DIR` runs each recorded call again in float64.",
    "overflow_check": 'Write "statistics": every dump counts NaN and infinities and reports the first.',
    "nan_check": 'Write "statistics": every dump counts NaN and infinities and reports the first.',
    "diff_check": 'Write "tensor", and compare two dumps.',
    "free_benchmark": "Probe never changes what a run computes; use msprobe for that.",
    "grad_probe": 'Write "statistics" with level "L0": parameter gradients are in every such dump.',
    "exception_dump": 'Write "statistics": what was recorded before an exception is kept.',
}
"""msprobe's other tasks, whose sections have no effect -> what to do instead."""

NOT_WATCHED = {
    "level", "precision", "extra_info", "async_dump", "async_bytes", "risk_level", "scope", "tensor_list", "data_mode",
    "summary_mode", "views", "apis", "zero_count", "sketch", "share", "compiled", "graph_taps", "optimizer_grad",
    "keep", "max_bytes", "min_free_bytes", "export",
}  # fmt: skip
"""The keys that have no effect under task `watch`, which records no calls."""

_ONLY_CHECK = "it belongs to msprobe's accuracy check"
_ONLY_GRAPH = "it belongs to MindSpore's static graphs"
_ONLY_BENCH = "it belongs to msprobe's free benchmark"
_ONLY_DIFF = "dump both runs and compare them instead"

IDLE_KEYS: dict[str, str] = {
    "enable_dataloader": "call start(), stop() and step() in the training loop",
    "custom_op_namespaces": "name such operators with register_custom_api()",
    "load": "Probe never changes what a run computes",
    "slice": "whole tensors are recorded; use list or tensor_list to record fewer",
    "request_id": "use token_range in start() to choose tokens",
    "bench_path": _ONLY_DIFF,
    "diff_nums": _ONLY_DIFF,
    "white_list": _ONLY_CHECK,
    "black_list": _ONLY_CHECK,
    "error_data_path": _ONLY_CHECK,
    "device": _ONLY_GRAPH,
    "file_format": _ONLY_GRAPH,
    "check_mode": _ONLY_GRAPH,
    "overflow_nums": "nothing is stopped by an overflow; the report names the first",
    "fuzz_device": _ONLY_BENCH,
    "fuzz_level": _ONLY_BENCH,
    "fuzz_stage": _ONLY_BENCH,
    "pert_mode": _ONLY_BENCH,
    "handler_type": _ONLY_BENCH,
    "if_preheat": _ONLY_BENCH,
    "preheat_step": _ONLY_BENCH,
    "max_sample": _ONLY_BENCH,
    "grad_level": "parameter gradients are in every dump at L0 and mix",
    "param_list": "parameter gradients are in every dump at L0 and mix; choose with list",
    "bounds": "parameter gradients are in every dump at L0 and mix",
}
"""msprobe's keys that have no effect in Probe -> why."""
