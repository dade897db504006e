"""List MindSpore's backends: which keys each one's control file has, and what each can do."""

from __future__ import annotations

from typing import Any

from attrs import frozen
from probe_format.errors import ConfigError, Problem
from probe_format.suggest import did_you_mean

__all__ = ["BACKENDS", "Backend", "backend_named"]

_BASE = ("dump_mode", "path", "net_name", "iteration", "input_output", "kernels", "support_device")
_DATA = ("op_debug_mode", *_BASE[:4], "saved_data", *_BASE[4:], "statistic_category")
_E2E = ("enable", "trans_flag")


@frozen(kw_only=True)
class Backend:
    """Describe one way of dumping.

    name: in code.
    title: for users.
    common, e2e: the keys of the control file's two sections, in the order of the documents.
    file: the name of the control file.
    debug_modes: the values of op_debug_mode.
    saved: the values of saved_data.
    kinds: the forms of kernel patterns in ``kernels``.
    asynchronous: whether it can dump asynchronously.
    acl: whether Ascend's ACL writes the dump.
    environment: variables that must be set besides MINDSPORE_DUMP_CONFIG.
    """

    name: str
    title: str
    common: tuple[str, ...]
    e2e: tuple[str, ...] = ()
    file: str = "kernel_kbyk_dump.json"
    debug_modes: tuple[int, ...] = (0,)
    saved: tuple[str, ...] = ("tensor", "statistic", "full")
    kinds: tuple[str, ...] = ("name", "type", "regex")
    asynchronous: bool = False
    acl: bool = False
    environment: tuple[tuple[str, str], ...] = ()

    def knows(self, key: str) -> bool:
        """Return whether the control file has this key."""
        return key in self.common or key in self.e2e


_GRAPH: dict[str, Any] = {
    "common": (*_DATA, "file_format", "overflow_number"), "file": "kernel_graph_dump.json",
    "kinds": ("name", "regex"), "acl": True,
}  # fmt: skip
_R15: dict[str, Any] = {"file": "data_dump.json", "saved": ("tensor",), "kinds": ("name",)}
_ALL = (
    Backend(
        name="ascend-o0o1",
        title="Ascend O0/O1",
        common=(*_DATA, "overflow_number"),
        e2e=(
            *_E2E,
            "stat_calc_mode",
            "device_stat_precision_mode",
            "sample_mode",
            "sample_num",
            "save_kernel_args",
        ),
        debug_modes=(0, 3, 4),
        asynchronous=True,
    ),
    Backend(name="ascend-o2", title="Ascend O2", debug_modes=(0, 3, 4), **_GRAPH),
    Backend(name="cpu", title="CPU", common=_DATA, e2e=_E2E, saved=("tensor",)),
    Backend(name="gpu", title="GPU", common=_DATA, e2e=_E2E),
    Backend(
        name="ge",
        title="GE (Ascend O2 with ENABLE_MS_GE_DUMP=1)",
        debug_modes=(0, 3),
        environment=(("ENABLE_MS_GE_DUMP", "1"),),
        **_GRAPH,
    ),
    Backend(name="r1.5-sync", title="MindSpore r1.5, synchronous", common=_BASE, e2e=_E2E, **_R15),
    Backend(
        name="r1.5-async",
        title="MindSpore r1.5, asynchronous",
        common=(*_BASE, "op_debug_mode"),
        debug_modes=(0, 1, 2, 3),
        asynchronous=True,
        **_R15,
    ),
)
BACKENDS: dict[str, Backend] = {backend.name: backend for backend in _ALL}
"""Every backend by its name."""


def backend_named(name: str) -> Backend:
    """Return the backend called ``name``. Raises ConfigError, listing the names, when it is unknown."""
    if name in BACKENDS:
        return BACKENDS[name]
    hint = did_you_mean(str(name), BACKENDS) or f"There are {', '.join(BACKENDS)}."
    raise ConfigError([Problem("backend", f"{name!r} is not a backend.", hint)])
