"""List the ways in which MindSpore itself can dump kernels (its backends, CPU to Ascend), and what each can do.

Each has a control file, MindSpore's JSON that says what to dump: its name, its keys, and the values that some allow.
"""

from attrs import evolve, frozen
from probe_format.errors import ConfigError, Problem
from probe_format.suggest import did_you_mean

_BASE = ("dump_mode", "path", "net_name", "iteration", "input_output", "kernels", "support_device")
_DATA = ("op_debug_mode", *_BASE[:4], "saved_data", *_BASE[4:], "statistic_category")
_E2E = ("enable", "trans_flag")


@frozen(kw_only=True)
class Backend:
    """Describe one way of dumping.

    name: in code.
    title: for users.
    file: the name of the control file.
    common, e2e: the keys of the file's two sections, in the order of the documents.
    debug_modes: the values of op_debug_mode.
    saved: the values of saved_data.
    kinds: the forms of kernel patterns in ``kernels``.
    asynchronous: whether it can dump asynchronously.
    acl: whether Ascend's ACL writes the dump.
    environment: variables that must be set besides MINDSPORE_DUMP_CONFIG.
    """

    name: str
    title: str
    file: str
    common: tuple[str, ...]
    e2e: tuple[str, ...]
    debug_modes: tuple[int, ...]
    saved: tuple[str, ...]
    kinds: tuple[str, ...] = ("name", "type", "regex")
    asynchronous: bool = False
    acl: bool = False
    environment: tuple[tuple[str, str], ...] = ()

    def knows(self, key: str) -> bool:
        return key in self.common or key in self.e2e


_ALL = ("tensor", "statistic", "full")
_O0O1 = Backend(name="ascend-o0o1", title="Ascend O0/O1", file="kernel_kbyk_dump.json",
                common=(*_DATA, "overflow_number"),
                e2e=(*_E2E, "stat_calc_mode", "device_stat_precision_mode", "sample_mode", "sample_num",
                     "save_kernel_args"),
                debug_modes=(0, 3, 4), saved=_ALL, asynchronous=True)  # fmt: skip
_O2 = Backend(name="ascend-o2", title="Ascend O2", file="kernel_graph_dump.json",
              common=(*_DATA, "file_format", "overflow_number"), e2e=(), debug_modes=(0, 3, 4), saved=_ALL,
              kinds=("name", "regex"), acl=True)  # fmt: skip
_CPU = Backend(name="cpu", title="CPU", file="kernel_kbyk_dump.json", common=_DATA, e2e=_E2E,
               debug_modes=(0,), saved=("tensor",))  # fmt: skip
_OLD = evolve(_CPU, name="r1.5-sync", title="MindSpore r1.5, synchronous", file="data_dump.json",
              common=_BASE, kinds=("name",))  # fmt: skip

BACKENDS: dict[str, Backend] = {
    b.name: b
    for b in (
        _O0O1,
        _O2,
        _CPU,
        evolve(_CPU, name="gpu", title="GPU", saved=_ALL),
        evolve(_O2, name="ge", title="GE (Ascend O2 with ENABLE_MS_GE_DUMP=1)", debug_modes=(0, 3),
               environment=(("ENABLE_MS_GE_DUMP", "1"),)),
        _OLD,
        evolve(_OLD, name="r1.5-async", title="MindSpore r1.5, asynchronous", e2e=(),
               common=(*_BASE, "op_debug_mode"), debug_modes=(0, 1, 2, 3), asynchronous=True),
    )
}  # fmt: skip
"""Every backend by its name."""


def backend_named(name: str) -> Backend:
    """Return the backend called ``name``. Raises ConfigError, listing the names, when it is unknown."""
    if name in BACKENDS:
        return BACKENDS[name]
    hint = did_you_mean(str(name), BACKENDS) or f"There are {', '.join(BACKENDS)}."
    raise ConfigError([Problem("backend", f"{name!r} is not a backend.", hint)])
