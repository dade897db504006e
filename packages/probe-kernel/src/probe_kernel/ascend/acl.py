"""Write the JSON that Ascend's own interface (aclInit, aclmdlSetDump, torch_npu) reads."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import attrs
from probe_format.errors import ConfigError, Problem

from probe_kernel.control.description import as_tuple, plain_path
from probe_kernel.control.iteration_ranges import parse_iterations
from probe_kernel.control.option_checks import check_types, one_of

ACL_STATISTICS = ("Max", "Min", "Avg", "Nan", "Negative Inf", "Positive Inf", "L2norm")
"""What ``stats`` may name."""


Scene = Literal["lite_exception", "aic_err_brief_dump", "aic_err_norm_dump", "aic_err_detail_dump"]


@attrs.frozen
class AclModel:
    """Select operators of one model: one entry of ``dump_list``.

    model_name: None selects every model.
    layers: its operators; empty selects all.
    """

    model_name: str | None = None
    layers: Sequence[str] = attrs.field(default=(), converter=as_tuple)


@attrs.frozen(kw_only=True)
class AclDump:
    """Describe a dump by Ascend's own dumper. `acl_settings` checks it.

    models: entries of dump_list. An AclModel() selects everything; an empty list is for single operators (PyTorch).
    mode: which sides to dump.
    level: operators, kernels or both.
    step: iterations, as in KernelDump.
    data: tensors or statistics.
    stats: which statistics.
    debug: dump only operators that overflow.
    scene: dump only operators that fail.
    op_switch: dump single operators, as PyTorch runs them.
    """

    path: str | os.PathLike[str] | None = attrs.field(default=None, converter=plain_path)
    models: Sequence[AclModel] = attrs.field(default=(), converter=as_tuple)
    mode: Literal["all", "input", "output"] = "all"
    level: Literal["op", "kernel", "all"] | None = None
    step: Any = "all"
    data: Literal["tensor", "stats"] | None = None
    stats: Sequence[str] | None = attrs.field(default=None, converter=as_tuple)
    debug: bool = False
    scene: Scene | None = None
    op_switch: bool = True


def acl_settings(dump: AclDump) -> dict[str, Any]:
    """Return the JSON as a mapping, keys in alphabetical order.

    Raises ConfigError, with every problem at once, when the description is wrong.
    """
    if problems := list(_problems(dump)):
        raise ConfigError(problems)
    full: dict[str, Any]
    steps, _ = parse_iterations(dump.step, "step")
    if dump.debug or dump.scene is not None:
        full = {"dump_debug": "on" if dump.debug else None, "dump_path": dump.path, "dump_scene": dump.scene}
    else:
        full = {
            "dump_data": dump.data,
            "dump_level": dump.level,
            "dump_list": [_entry(m) for m in dump.models],
            "dump_mode": dump.mode,
            "dump_op_switch": "on" if dump.op_switch else "off",
            "dump_path": dump.path,
            "dump_stats": dump.stats and list(dump.stats),
            "dump_step": None if steps.all else str(steps),
        }
    return {"dump": {k: v for k, v in full.items() if v is not None}}


def _entry(model: AclModel) -> dict[str, Any]:
    full = {"model_name": model.model_name, "layer": list(model.layers) or None}
    return {k: v for k, v in full.items() if v is not None}


def _problems(dump: AclDump) -> Iterator[Problem]:
    if dump.path is None and dump.scene is None:
        yield Problem("path", "is not given.", 'Write e.g. path="/data/dump".')
    elif dump.path is not None and (not isinstance(dump.path, str) or not dump.path):
        yield Problem("path", f"{dump.path!r} is not a path.", 'Write e.g. path="/data/dump".')
    yield from check_types(dump)
    yield from parse_iterations(dump.step, "step")[1]
    yield from _models(dump)
    yield from _statistics(dump)
    yield from _alone(dump)


def _models(dump: AclDump) -> Iterator[Problem]:
    if not isinstance(dump.models, tuple):
        yield Problem("models", f"{dump.models!r} is not a list of AclModel.", "Write e.g. [AclModel()].")
        return
    names = []
    for i, model in enumerate(dump.models):
        if not isinstance(model, AclModel):
            yield Problem(f"models[{i}]", f"{model!r} is no AclModel.", 'Write e.g. AclModel("ResNet-50").')
            continue
        if model.model_name is not None and model.model_name in names:
            what = f"the model {model.model_name!r} is there twice; each name must be once."
            yield Problem(f"models[{i}]", what, "Join their layers.")
        names.append(model.model_name)
        if not isinstance(model.layers, tuple) or not all(isinstance(n, str) and n for n in model.layers):
            what = f"{model.layers!r} is not a list of names."
            yield Problem(f"models[{i}].layers", what, 'Write e.g. ["conv1"].')


def _statistics(dump: AclDump) -> Iterator[Problem]:
    if dump.stats is None:
        return
    if dump.data != "stats":
        what = f"is for data 'stats', and data is {dump.data or 'tensor'!r}."
        yield Problem("stats", what, 'Leave it out, or write data="stats".')
    if not isinstance(dump.stats, tuple) or not dump.stats:
        yield Problem("stats", f"{dump.stats!r} is not a list of statistics.", 'Write e.g. ["Max", "Min"].')
        return
    for i, name in enumerate(dump.stats):
        yield from one_of(f"stats[{i}]", str(name), ACL_STATISTICS)


def _alone(dump: AclDump) -> Iterator[Problem]:
    """Refuse other options beside debug or scene: the interface returns an error for the pair."""
    if not dump.debug and dump.scene is None:
        return
    if dump.debug and dump.scene is not None:
        yield Problem("scene", "goes with no other kind of dump, debug is on.", "Leave one of them out.")
    what = f"goes with no {'debug' if dump.debug else 'scene'} dump: that one chooses its operators itself."
    for name in ("models", "mode", "level", "step", "data", "stats"):
        if getattr(dump, name) != getattr(attrs.fields(AclDump), name).default:
            yield Problem(name, what, "Leave it out.")
