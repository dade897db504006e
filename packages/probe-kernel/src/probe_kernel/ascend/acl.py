"""Check the options of a dump by Ascend's own dumper, write them as its JSON, and switch that dumper by torch_npu.

The JSON is what aclInit, aclmdlSetDump and torch_npu read.
"""

import contextlib
import importlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import attrs
from probe_format.errors import ConfigError, Problem, UsageError
from probe_runtime.config import choice, flag, key

from probe_kernel.control.control_file import settings_text, write_settings
from probe_kernel.control.description import as_check, as_tuple, checked, plain_path
from probe_kernel.control.iteration_ranges import parse_iterations

Side = Literal["all", "input", "output"]
Level = Literal["op", "kernel", "all"]
Data = Literal["tensor", "stats"]
Scene = Literal["lite_exception", "aic_err_brief_dump", "aic_err_norm_dump", "aic_err_detail_dump"]
_STATISTICS = choice("Max", "Min", "Avg", "Nan", "Negative Inf", "Positive Inf", "L2norm")


@attrs.frozen
class AclModel:
    """Select operators of one model: one entry of ``dump_list``.

    model_name: None selects every model.
    layers: its operators; empty selects all.
    """

    model_name: str | None = None
    layers: Sequence[str] = attrs.field(default=(), converter=as_tuple)


@as_check
def _models(models: Any, where: str) -> Iterator[Problem]:
    if not isinstance(models, tuple):
        yield Problem(where, f"{models!r} is not a list of AclModel.", "Write e.g. [AclModel()].")
        return
    names = []
    for i, model in enumerate(models):
        if not isinstance(model, AclModel):
            yield Problem(f"{where}[{i}]", f"{model!r} is no AclModel.", 'Write e.g. AclModel("ResNet-50").')
            continue
        if model.model_name is not None and model.model_name in names:
            what = f"the model {model.model_name!r} is there twice; each name must be once."
            yield Problem(f"{where}[{i}]", what, "Join their layers.")
        names.append(model.model_name)
        if not isinstance(model.layers, tuple) or not all(isinstance(n, str) and n for n in model.layers):
            what = f"{model.layers!r} is not a list of names."
            yield Problem(f"{where}[{i}].layers", what, 'Write e.g. ["conv1"].')


@as_check
def _statistics(given: Any, where: str) -> Iterator[Problem]:
    if not isinstance(given, tuple) or not given:
        yield Problem(where, f"{given!r} is not a list of statistics.", 'Write e.g. ["Max", "Min"].')
        return
    for i, name in enumerate(given):
        yield from _STATISTICS(str(name), f"{where}[{i}]")[1]


@attrs.frozen(kw_only=True)
class AclDump:
    """Describe a dump by Ascend's own dumper. `acl_settings` checks it."""

    path: str | os.PathLike[str] | None = attrs.field(default=None, converter=plain_path)
    models: Sequence[AclModel] = key(
        (), "entries of dump_list: an AclModel() selects everything; an empty list is for single operators (PyTorch)",
        _models, converter=as_tuple,
    )  # fmt: skip
    mode: Side = key("all", "which sides to dump", choice(*get_args(Side)))
    level: Level | None = key(None, "operators, kernels or both", choice(*get_args(Level)))
    step: Any = key("all", "iterations, as in KernelDump", parse_iterations)
    data: Data | None = key(None, "tensors or statistics", choice(*get_args(Data)))
    stats: Sequence[str] | None = key(None, "which statistics", _statistics, converter=as_tuple)
    debug: bool = key(False, "dump only operators that overflow", flag)
    scene: Scene | None = key(None, "dump only operators that fail", choice(*get_args(Scene)))
    op_switch: bool = key(True, "dump single operators, as PyTorch runs them", flag)


def acl_settings(dump: AclDump) -> dict[str, Any]:
    """Return the JSON as a mapping, keys in alphabetical order.

    Raises ConfigError, with every problem at once, when the description is wrong.
    """
    values, problems = checked(dump)
    if problems := [*_path(dump), *problems, *_together(dump)]:
        raise ConfigError(problems)
    steps = values["step"]
    full: dict[str, Any] = {
        "dump_data": dump.data,
        "dump_level": dump.level,
        "dump_list": [
            _given({"model_name": m.model_name, "layer": list(m.layers) or None}) for m in dump.models
        ],
        "dump_mode": dump.mode,
        "dump_op_switch": "on" if dump.op_switch else "off",
        "dump_path": dump.path,
        "dump_stats": dump.stats and list(dump.stats),
        "dump_step": None if steps.all else str(steps),
    }
    if dump.debug or dump.scene is not None:
        full = {"dump_debug": "on" if dump.debug else None, "dump_path": dump.path, "dump_scene": dump.scene}
    return {"dump": _given(full)}


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if value is not None}


def _path(dump: AclDump) -> Iterator[Problem]:
    if dump.path is None and dump.scene is None:
        yield Problem("path", "is not given.", 'Write e.g. path="/data/dump".')
    elif dump.path is not None and (not isinstance(dump.path, str) or not dump.path):
        yield Problem("path", f"{dump.path!r} is not a path.", 'Write e.g. path="/data/dump".')


def _together(dump: AclDump) -> Iterator[Problem]:
    if dump.stats is not None and dump.data != "stats":
        what = f"is for data 'stats', and data is {dump.data or 'tensor'!r}."
        yield Problem("stats", what, 'Leave it out, or write data="stats".')
    if not dump.debug and dump.scene is None:  # beside debug or scene the interface takes no other option
        return
    if dump.debug and dump.scene is not None:
        yield Problem("scene", "goes with no other kind of dump, debug is on.", "Leave one of them out.")
    what = f"goes with no {'debug' if dump.debug else 'scene'} dump: that one chooses its operators itself."
    for name in ("models", "mode", "level", "step", "data", "stats"):
        if getattr(dump, name) != getattr(attrs.fields(AclDump), name).default:
            yield Problem(name, what, "Leave it out.")


_NEEDED = ("init_dump", "set_dump", "finalize_dump", "synchronize")


@contextlib.contextmanager
def dumping(npu: Any, config: Path) -> Iterator[None]:
    """Dump every operator that runs in the block, as the ACL file ``config`` says.

    npu: the module ``torch_npu.npu``, or an object with its four functions.
    """
    npu.synchronize()  # wait for earlier operators, which do not belong to the call
    npu.init_dump()
    try:
        npu.set_dump(str(config))
        npu.synchronize()
        yield
    finally:
        try:
            npu.synchronize()  # wait for the operators that the call queued
        finally:
            npu.finalize_dump()
            npu.synchronize()


@contextlib.contextmanager
def same_random(npu: Any) -> Iterator[None]:
    """Restore the state of the random numbers at the end of the block, so that they are drawn again after it."""
    get, put = getattr(npu, "get_rng_state", None), getattr(npu, "set_rng_state", None)
    state = get() if get is not None and put is not None else None
    torch = importlib.import_module("torch")
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            if state is not None and put is not None:
                put(state)


def find_npu() -> Any:
    """Return ``torch_npu.npu``. Raises UsageError when it is not installed, or too old to dump."""
    try:
        npu = importlib.import_module("torch_npu").npu
    except ImportError as e:
        raise UsageError(
            "Kernels of PyTorch are dumped by Ascend's own dumper, and torch_npu is not installed. On a machine with "
            "an NPU install it (pip install torch_npu); elsewhere use level L0, L1 or mix."
        ) from e
    if missing := [name for name in _NEEDED if not hasattr(npu, name)]:
        what = f"it has no npu.{missing[0]}. Install a newer one."
        raise UsageError(f"This torch_npu cannot dump kernels: {what}")
    return npu


def write_acl(folder: Path, mode: str) -> Path:
    """Write ``kernel_config_{pid}.json`` for single operators into ``folder``, creating it; return the file's path.

    mode: all, input or output.
    Raises ConfigError when an option is wrong, OSError when the file cannot be written.
    """
    document = acl_settings(AclDump(path=str(folder), mode=mode))  # type: ignore[arg-type]
    path = folder / f"kernel_config_{os.getpid()}.json"
    write_settings(path, settings_text(document))
    return path
