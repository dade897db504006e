"""Every key a configuration may hold: where it stands, how it is checked, and the keys without effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from attrs import frozen

from .value_checks import (
    Check,
    choice,
    choices,
    flag,
    names,
    numbers,
    one_or_names,
    output_path,
    positive,
    source_file,
)

__all__ = ["IDLE_KEYS", "IDLE_SECTIONS", "KERNEL_KEYS", "KEYS", "SECTIONS", "Key", "keys_of"]

SECTIONS = ("statistics", "tensor", "structure")
"""Tasks; each may have a section of its own in the file."""


@frozen
class Key:
    """One key. level: "top", or "section" (may also stand at the top). ours: msprobe has no such key."""

    check: Check
    level: Literal["top", "section"] = "top"
    ours: bool = False


_OTHER_TASKS = {
    "run_ut": "Dump with task statistics or tensor; checking single APIs is msprobe's own job.",
    "acc_check": "Dump with task statistics or tensor; checking single APIs is msprobe's own job.",
    "overflow_check": 'Write "statistics": every dump counts NaN and infinities and reports the first.',
    "nan_check": 'Write "statistics": every dump counts NaN and infinities and reports the first.',
    "diff_check": 'Write "tensor", and compare two dumps.',
    "free_benchmark": "Probe never changes what a run computes; use msprobe for that.",
    "grad_probe": 'Write "statistics" with level "L0": parameter gradients are in every such dump.',
    "exception_dump": 'Write "statistics": what was recorded before an exception is kept.',
}

KEYS: dict[str, Key] = {
    "task": Key(choice(*SECTIONS, known=_OTHER_TASKS)),
    "level": Key(choice("L0", "L1", "mix", "debug", "L2")),
    "dump_path": Key(output_path),
    "rank": Key(numbers),
    "step": Key(numbers),
    "precision": Key(choice("low", "high")),
    "extra_info": Key(flag),
    "async_dump": Key(flag),
    "risk_level": Key(choice("ALL", "FOCUS", "CORE")),
    "scope": Key(names, "section"),
    "list": Key(names, "section"),
    "tensor_list": Key(names, "section"),
    "data_mode": Key(choices("forward", "backward", "input", "output", alone="all"), "section"),
    "summary_mode": Key(choice("statistics", "md5", "xor"), "section"),
    "async_bytes": Key(positive, ours=True),
    "views": Key(flag, "section", ours=True),
    "apis": Key(source_file, "section", ours=True),
    "zero_count": Key(flag, "section", ours=True),
    "overwrite": Key(flag, ours=True),
    "max_faults": Key(positive, ours=True),
    "share": Key(flag, ours=True),
}

KERNEL_KEYS: dict[str, Key] = {
    "device": Key(choice("host", "device"), "section"),
    "file_format": Key(choice("npy", "bin"), "section"),
    "precision": Key(choice("low", "high"), "section"),
    "summary_mode": Key(one_or_names("statistics", "md5", "xor"), "section"),
}
"""Keys that mean something else, or anything at all, at level "L2" alone: there they are of MindSpore's kernel dump."""


def keys_of(level: object) -> Mapping[str, Key]:
    """Return the keys that a configuration of this level may hold."""
    return {**KEYS, **KERNEL_KEYS} if level == "L2" else KEYS


_ONLY_CHECK = "it belongs to msprobe's accuracy check"
_ONLY_GRAPH = "it belongs to MindSpore's static graphs"
_ONLY_BENCH = "it belongs to msprobe's free benchmark"
_ONLY_DIFF = "dump both runs and compare them instead"

IDLE_KEYS: dict[str, str] = {
    "dump_enable": "start() and stop() alone decide",
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
"""msprobe's keys that mean nothing to Probe, and why."""

IDLE_SECTIONS: dict[str, str] = _OTHER_TASKS
"""Sections of msprobe's other tasks: the whole section means nothing to Probe."""
