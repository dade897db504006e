"""Check the options of a kernel dump: whether they fit together, and whether the backend knows them.

A backend is one of the ways in which MindSpore itself dumps kernels (`backends`). The rules (`Rule`) are those of
MindSpore's documents. What is accepted and has no effect on that backend becomes a note.
"""

import os
from collections.abc import Callable, Iterator, Mapping

from attrs import evolve, frozen
from probe_format.errors import Problem

from .backends import Backend
from .description import KernelDump, checked, folder
from .iteration_ranges import Iterations
from .kernel_patterns import KernelPattern

_VARIABLE = "MS_DIAGNOSTIC_DATA_PATH"


@frozen
class Values:
    """Hold the options that are parsed rather than copied. path: of the dump; None where no usable one is given."""

    path: str | None
    iterations: Iterations
    kernels: tuple[KernelPattern, ...]


@frozen
class Rule:
    """Say when an option is wrong or without effect, and what to do.

    name: in spec/kernel-config.md.
    option: of KernelDump.
    broken: whether a description, its parsed options and its backend break the rule.
    what, remedy: sentences, in which ``d`` is the description, ``b`` the backend and ``modes`` its debug modes.
    """

    name: str
    option: str
    broken: Callable[[KernelDump, Values, Backend], object]
    what: str
    remedy: str = ""

    def problems(self, dump: KernelDump, values: Values, backend: Backend) -> Iterator[Problem]:
        if self.broken(dump, values, backend):
            modes = " or ".join(map(str, backend.debug_modes))
            what, remedy = (s.format(d=dump, b=backend, modes=modes) for s in (self.what, self.remedy))
            yield Problem(self.option, what, remedy)


def check(
    dump: KernelDump, backend: Backend, environ: Mapping[str, str] | None = None
) -> tuple[Values, list[Problem]]:
    """Return the parsed options of ``dump``, and every problem: of an option, or with a rule of ``backend``.

    environ: where MS_DIAGNOSTIC_DATA_PATH is looked up; the process's environment when None.
    """
    found, problems = checked(dump)
    path, where = dump.path, "path"
    if not path and (root := (os.environ if environ is None else environ).get(_VARIABLE)):
        path, where = f"{root}/debug_dump", _VARIABLE
    if path:
        problems += folder(path, where)[1]
    else:
        what = f"is not given, and {_VARIABLE} is not set either."
        problems.append(Problem("path", what, 'Write e.g. path="/data/dump".'))
    if dump.inputs is False and dump.outputs is False:
        problems.append(
            Problem("outputs", "neither inputs nor outputs are wanted.", "Leave one of them True.")
        )
    values = Values(path if isinstance(path, str) else None, found["iterations"], found["kernels"])
    ruled = (problem for rule in RULES for problem in rule.problems(dump, values, backend))
    return values, [*problems, *unknown_options(dump, backend), *kinds_of_kernels(values, backend), *ruled]


def renamed(problem: Problem, names: Mapping[str, tuple[str, str]]) -> Problem:
    """Return a problem of an option as a problem of the key that the option came from.

    names: option -> its key and the key's remedy, where they differ; an empty remedy leaves the problem's own.
    """
    option, bracket, index = problem.where.partition("[")
    key, remedy = names.get(option, (option, ""))
    return evolve(problem, where=key + bracket + index, remedy=remedy or problem.remedy)


def notes_of(dump: KernelDump, values: Values, backend: Backend) -> tuple[Problem, ...]:
    """Return what ``dump`` asks for without effect on ``backend``; it is accepted, as the documents have it."""
    return tuple(note for rule in NOTES for note in rule.problems(dump, values, backend))


#: Options that not every backend has -> what a backend without the option does instead.
_WHY = {
    "file_format": "always writes npy files",
    "overflow_number": "has no overflow dump with a limit",
    "statistic_category": "has no statistics",
    "saved_data": "saves tensors only, and has no such setting",
    "trans_flag": "has no such setting",
    "stat_calc_mode": "computes statistics on the host only",
    "device_stat_precision_mode": "computes statistics on the host only",
    "sample_mode": "has no sample dump",
    "sample_num": "has no sample dump",
    "save_kernel_args": "does not save the kernels' arguments",
}


def unknown_options(dump: KernelDump, backend: Backend) -> Iterator[Problem]:
    """Refuse an option that the backend does not read, unless it asks for what the backend does in any case."""
    always = {"saved_data": "tensor", "file_format": None if backend.asynchronous else "npy"}
    for option, why in _WHY.items():
        if getattr(dump, option) not in (None, always.get(option)) and not backend.knows(option):
            yield Problem(option, f"{backend.title} {why}.", "Leave it out.")


def kinds_of_kernels(values: Values, backend: Backend) -> Iterator[Problem]:
    """Refuse patterns that the backend does not know: r1.5 has only names, O2 and GE names and expressions."""
    for pattern in values.kernels:
        if pattern.kind in backend.kinds:
            if pattern.kind == "name" and "type" in backend.kinds and "-op" not in pattern.text:
                what = f"{pattern.text!r} is a scope: every operator's name ends in -op and a number."
                remedy = f'Write "name-regex({pattern.text.rstrip("/")}/.+)".'
                yield Problem("kernels", what, remedy)
        elif pattern.kind == "type" and "regex" in backend.kinds:
            what = f"{backend.title} knows no operator types, and {pattern.text!r} has no scope."
            yield Problem("kernels", what, f'Write "name-regex(.*{pattern.text}.*)", or the full name.')
        else:
            what = f"{backend.title} knows full names only, and {pattern.text!r} is not one."
            yield Problem("kernels", what, 'Write e.g. "Default/conv1-Conv2d/Conv2D-op12".')


_DEVICE = ("max", "min", "avg", "l2norm")


def _statistics(dump: KernelDump) -> bool:
    return dump.saved_data in ("statistic", "full")


def _on_device(dump: KernelDump, backend: Backend) -> bool:
    return backend.knows("stat_calc_mode") and dump.stat_calc_mode == "device"


RULES = (
    Rule("statistics_of_saved", "saved_data",
         lambda d, v, b: _statistics(d) and d.saved_data not in b.saved and b.knows("saved_data"),
         "MindSpore on {b.title} refuses statistics ({d.saved_data!r}).",
         'Write "tensor", and let `probe kernel statistics` compute them from the tensors afterwards.'),
    Rule("statistics_need_npy", "file_format",
         lambda d, v, b: _statistics(d) and b.knows("file_format") and d.file_format in (None, "bin"),
         "bin files come without statistics (saved_data is {d.saved_data!r}), and bin is the default.",
         'Write "npy", or saved_data="tensor".'),
    Rule("statistics_need_data", "saved_data",
         lambda d, v, b: d.saved_data not in (None, "tensor") and d.op_debug_mode != 0,
         "statistics exist only with op_debug_mode 0, and it is {d.op_debug_mode!r}.", 'Write "tensor".'),
    Rule("device_statistics", "stat_calc_mode",
         lambda d, v, b: _on_device(d, b) and d.saved_data != "statistic",
         "the device computes statistics only with saved_data 'statistic'.",
         'Write "host", or saved_data="statistic".'),
    Rule("device_statistics", "statistic_category",
         lambda d, v, b: _on_device(d, b) and any(c not in _DEVICE for c in d.statistic_category or ()),
         "the device computes max, min, avg and l2norm, not all of {d.statistic_category}.",
         'Write these alone, or stat_calc_mode="host".'),
    Rule("device_statistics", "device_stat_precision_mode",
         lambda d, v, b: b.knows("stat_calc_mode") and d.device_stat_precision_mode and not _on_device(d, b),
         'has no effect: it is for stat_calc_mode "device".', "Leave it out."),
    Rule("debug_modes", "op_debug_mode",
         lambda d, v, b: d.op_debug_mode in (1, 2) and 2 not in b.debug_modes and d.op_debug_mode is not True,
         "{d.op_debug_mode} is of MindSpore r1.5.", "Write {modes}."),
    Rule("debug_modes", "op_debug_mode",
         lambda d, v, b: d.op_debug_mode in (3, 4) and b.debug_modes == (0,),
         "{d.op_debug_mode}: {b.title} finds no overflows and no failing kernels.", "Write 0."),
    Rule("debug_modes", "op_debug_mode",
         lambda d, v, b: d.op_debug_mode in (3, 4) and d.op_debug_mode not in b.debug_modes != (0,),
         "{b.title} has no mode {d.op_debug_mode}.", "Write {modes}."),
    Rule("debug_directions", "inputs", lambda d, v, b: d.op_debug_mode == 3 and d.inputs is False,
         "an overflow (op_debug_mode 3) is dumped with inputs and outputs, not with outputs alone.",
         "Leave out inputs=False."),
    Rule("debug_directions", "outputs", lambda d, v, b: d.op_debug_mode == 3 and d.outputs is False,
         "an overflow (op_debug_mode 3) is dumped with inputs and outputs, not with inputs alone.",
         "Leave out outputs=False."),
    Rule("debug_directions", "inputs", lambda d, v, b: d.op_debug_mode == 4 and d.inputs is False,
         "op_debug_mode 4 dumps inputs only.", "Write inputs=True."),
    Rule("debug_selection", "kernels", lambda d, v, b: d.op_debug_mode != 0 and v.kernels,
         "op_debug_mode {d.op_debug_mode} dumps the kernels that it finds; MindSpore would drop the list.",
         "Leave it out, or write op_debug_mode=0."),
    Rule("debug_selection", "set_dump", lambda d, v, b: d.op_debug_mode != 0 and d.set_dump is True,
         "works with op_debug_mode 0 only, not {d.op_debug_mode}.", "Leave it out."),
    Rule("debug_selection", "iterations",
         lambda d, v, b: d.op_debug_mode in ((3, 4) if b.acl else (4,)) and not v.iterations.all,
         "op_debug_mode {d.op_debug_mode} cannot be limited to iterations on {b.title}.", 'Write "all".'),
    Rule("debug_selection", "sample_mode", lambda d, v, b: d.op_debug_mode != 0 and d.sample_mode,
         "works with op_debug_mode 0 only, not {d.op_debug_mode}.", "Leave it out."),
    Rule("overflow_limit", "overflow_number",
         lambda d, v, b: d.overflow_number is not None
         and b.knows("overflow_number") and d.op_debug_mode != 3,
         "is for op_debug_mode 3, and it is {d.op_debug_mode!r}; MindSpore refuses it.",
         "Leave it out, or write op_debug_mode=3."),
    Rule("overflow_limit", "overflow_number",
         lambda d, v, b: b.acl and d.overflow_number is not None and d.op_debug_mode == 3
         and d.file_format != "npy",
         "works with npy files only.", 'Write file_format="npy".'),
    Rule("samples", "sample_num",
         lambda d, v, b: d.sample_num is not None and b.knows("sample_num") and d.sample_mode != 1,
         "has no effect without sample_mode 1.", "Write sample_mode=1, or leave it out."),
    Rule("set_dump_mode", "set_dump", lambda d, v, b: d.set_dump is True and v.kernels,
         "set_dump and a list of kernels exclude each other.", "Leave one of them out."),
    Rule("set_dump_mode", "set_dump", lambda d, v, b: d.set_dump is True and b.name != "ascend-o0o1",
         "MindSpore refuses set_dump (dump_mode 2) on {b.title}.", "Leave it out, and choose with kernels."),
    Rule("synchrony", "synchronous",
         lambda d, v, b: not b.knows("enable")
         and d.synchronous not in (None, False if b.asynchronous else None),
         "{b.title} has one way of dumping.", "Leave it out."),
    Rule("synchrony", "synchronous",
         lambda d, v, b: b.knows("enable") and d.synchronous is False and not b.asynchronous,
         "{b.title} dumps synchronously only.", "Leave it out."),
    Rule("synchrony", "save_kernel_args",
         lambda d, v, b: d.synchronous is False and b.knows("save_kernel_args") and d.save_kernel_args,
         "are saved in synchronous dumps only.", "Leave out synchronous=False."),
)  # fmt: skip
"""The rules beside `unknown_options` and `kinds_of_kernels`."""

NOTES = (
    Rule("devices_of_cpu", "devices", lambda d, v, b: b.name == "cpu" and d.devices is not None,
         "has no effect: a CPU has no devices, so every rank dumps. To dump one, open the dump on that rank only."),
    Rule("layout_of_cpu", "trans_flag", lambda d, v, b: b.name == "cpu" and d.trans_flag is False,
         "has no effect: a CPU has one layout."),
    Rule("unused_categories", "statistic_category",
         lambda d, v, b: d.statistic_category and b.knows("statistic_category") and not _statistics(d),
         "has no effect: saved_data is tensor, so there are no statistics."),
    Rule("sides_of_exception", "outputs",
         lambda d, v, b: d.op_debug_mode == 4 and d.inputs is True and d.outputs is True,
         "has no effect: op_debug_mode 4 dumps the inputs of a kernel that failed, which has no output."),
)  # fmt: skip
"""What has no effect but is accepted, because the documents use it there."""
