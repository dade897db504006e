"""Check options against each other and against the backend: each rule of the documents is one function.

A rule refuses what would be wrong, a note tells of what has no effect.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping

from probe_format.errors import Problem

from .backends import Backend
from .description import KernelDump
from .option_checks import Values, check_values

__all__ = ["NOTES", "RULES", "check", "notes_of"]

Rule = Callable[[KernelDump, Values, Backend], Iterator[Problem]]
Note = Callable[[KernelDump, Values, Backend], Iterator[str]]


def check(
    dump: KernelDump, backend: Backend, environ: Mapping[str, str] | None = None
) -> tuple[Values, list[Problem]]:
    """Return the parsed options of ``dump``, and every problem: of an option, or with a rule of ``backend``.

    environ: where MS_DIAGNOSTIC_DATA_PATH is looked up; the process's environment when None.
    """
    values, problems = check_values(dump, os.environ if environ is None else environ)
    return values, [*problems, *(problem for rule in RULES for problem in rule(dump, values, backend))]


#: Options that not every backend has -> what one without does instead.
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


def _unknown_options(dump: KernelDump, values: Values, backend: Backend) -> Iterator[Problem]:
    """Refuse an option that the backend does not read."""
    for option, why in _WHY.items():
        if getattr(dump, option) is not None and not backend.knows(option):
            if option == "saved_data" and dump.saved_data == "tensor":
                continue  # the backend does so in any case
            if option == "file_format" and dump.file_format == "npy" and not backend.asynchronous:
                continue
            yield Problem(option, f"{backend.title} {why}.", "Leave it out.")


def _kinds_of_kernels(dump: KernelDump, values: Values, backend: Backend) -> Iterator[Problem]:
    """Refuse patterns that the backend does not know: r1.5 has only names, O2 and GE names and expressions."""
    for pattern in values.kernels:
        if pattern.kind in backend.kinds:
            if pattern.kind == "name" and "type" in backend.kinds and "-op" not in pattern.text:
                what = f"{pattern.text!r} is a scope: every operator's name ends in -op and a number."
                remedy = f'Write "name-regex({pattern.text.rstrip("/")}/.+)".'
                yield Problem("kernels", what, remedy)
            continue
        if pattern.kind == "type" and "regex" in backend.kinds:
            what = f"{backend.title} knows no operator types, and {pattern.text!r} has no scope."
            yield Problem("kernels", what, f'Write "name-regex(.*{pattern.text}.*)", or the full name.')
        else:
            what = f"{backend.title} knows full names only, and {pattern.text!r} is not one."
            yield Problem("kernels", what, 'Write e.g. "Default/conv1-Conv2d/Conv2D-op12".')


def _statistics_of_saved(dump: KernelDump, values: Values, backend: Backend) -> Iterator[Problem]:
    """Refuse a saved_data that the backend does not have."""
    saved = dump.saved_data
    if saved in ("statistic", "full") and saved not in backend.saved and backend.knows("saved_data"):
        what = f"MindSpore on {backend.title} refuses statistics ({saved!r})."
        remedy = 'Write "tensor", and let `probe kernel statistics` compute them from the tensors afterwards.'
        yield Problem("saved_data", what, remedy)


def _statistics_need_npy(dump: KernelDump, values: Values, backend: Backend) -> Iterator[Problem]:
    """Refuse statistics with bin files, which come without; bin is MindSpore's default."""
    if dump.saved_data in ("statistic", "full") and backend.knows("file_format"):
        if dump.file_format == "bin":
            what = f"bin files come without statistics (saved_data is {dump.saved_data!r})."
            yield Problem("file_format", what, 'Write "npy", or saved_data="tensor".')
        elif dump.file_format is None:
            what = f"is bin when left out, and bin files come without statistics ({dump.saved_data!r})."
            yield Problem("file_format", what, 'Write "npy".')


def _statistics_need_data(dump: KernelDump, values: Values, backend: Backend) -> Iterator[Problem]:
    """Refuse statistics of overflows and of failed kernels: they exist for op_debug_mode 0 only."""
    if dump.saved_data not in (None, "tensor") and dump.op_debug_mode != 0:
        what = f"statistics exist only with op_debug_mode 0, and it is {dump.op_debug_mode!r}."
        yield Problem("saved_data", what, 'Write "tensor".')


def _device_statistics(dump: KernelDump, values: Values, backend: Backend) -> Iterator[Problem]:
    """Check statistics computed on the device: four of them, and never together with tensors."""
    if not backend.knows("stat_calc_mode"):
        return
    device = dump.stat_calc_mode == "device"
    if device and dump.saved_data != "statistic":
        what = f"the device computes statistics only with saved_data 'statistic', not {dump.saved_data or 'tensor'!r}."
        yield Problem("stat_calc_mode", what, 'Write "host", or saved_data="statistic".')
    if device:
        there = ("max", "min", "avg", "l2norm")
        extra = [c for c in dump.statistic_category or () if c not in there]
        if extra:
            what = f"the device computes max, min, avg and l2norm, not {', '.join(map(str, extra))}."
            yield Problem("statistic_category", what, 'Remove these, or write stat_calc_mode="host".')
    if dump.device_stat_precision_mode is not None and not device:
        what = 'has no effect: it is for stat_calc_mode "device".'
        yield Problem("device_stat_precision_mode", what, "Leave it out.")


def _debug_modes(dump: KernelDump, values: Values, backend: Backend) -> Iterator[Problem]:
    """Refuse an op_debug_mode that the backend does not have."""
    mode = dump.op_debug_mode
    if isinstance(mode, bool) or mode in backend.debug_modes or mode not in (0, 1, 2, 3, 4):
        return
    listed = " or ".join(map(str, backend.debug_modes))
    if mode in (1, 2):
        yield Problem("op_debug_mode", f"{mode} is of MindSpore r1.5.", f"Write {listed}.")
    elif backend.debug_modes == (0,):
        what = f"{mode}: {backend.title} finds no overflows and no failing kernels."
        yield Problem("op_debug_mode", what, "Write 0.")
    else:
        yield Problem("op_debug_mode", f"{backend.title} has no mode {mode}.", f"Write {listed}.")


def _debug_directions(dump: KernelDump, values: Values, backend: Backend) -> Iterator[Problem]:
    """Check the sides of debug dumps: overflows have inputs and outputs, exceptions inputs."""
    if dump.op_debug_mode == 3 and not (dump.inputs is True and dump.outputs is True):
        side = "outputs" if dump.inputs is False else "inputs"
        missing = "inputs" if side == "outputs" else "outputs"
        what = f"an overflow (op_debug_mode 3) is dumped with inputs and outputs, not with {side} alone."
        yield Problem(missing, what, f"Leave out {missing}=False.")
    if dump.op_debug_mode == 4 and dump.inputs is False:
        yield Problem("inputs", "op_debug_mode 4 dumps inputs only.", "Write inputs=True.")


def _debug_selection(dump: KernelDump, values: Values, backend: Backend) -> Iterator[Problem]:
    """Refuse a selection where op_debug_mode makes the dumper choose kernels, and partly iterations, itself."""
    mode = dump.op_debug_mode
    if mode == 0:
        return
    if values.kernels:
        what = f"op_debug_mode {mode} dumps the kernels that it finds; MindSpore would drop the list."
        yield Problem("kernels", what, "Leave it out, or write op_debug_mode=0.")
    if dump.set_dump is True:
        yield Problem("set_dump", f"works with op_debug_mode 0 only, not {mode}.", "Leave it out.")
    everywhere = (3, 4) if backend.knows("file_format") else (4,)
    if mode in everywhere and values.iterations.spans is not None:
        what = f"op_debug_mode {mode} cannot be limited to iterations on {backend.title}."
        yield Problem("iterations", what, 'Write "all".')
    if dump.sample_mode:
        yield Problem("sample_mode", f"works with op_debug_mode 0 only, not {mode}.", "Leave it out.")


def _overflow_limit(dump: KernelDump, values: Values, backend: Backend) -> Iterator[Problem]:
    """Refuse overflow_number without overflows, and on O2 without npy files."""
    if dump.overflow_number is None or not backend.knows("overflow_number"):
        return
    if dump.op_debug_mode != 3:
        what = f"is for op_debug_mode 3, and it is {dump.op_debug_mode!r}; MindSpore refuses it."
        yield Problem("overflow_number", what, "Leave it out, or write op_debug_mode=3.")
    elif backend.knows("file_format") and dump.file_format != "npy":
        yield Problem("overflow_number", "works with npy files only.", 'Write file_format="npy".')


def _samples(dump: KernelDump, values: Values, backend: Backend) -> Iterator[Problem]:
    """Refuse sample_num where no samples are taken."""
    if dump.sample_num is not None and backend.knows("sample_num") and dump.sample_mode != 1:
        what = "has no effect without sample_mode 1."
        yield Problem("sample_num", what, "Write sample_mode=1, or leave it out.")


def _set_dump_mode(dump: KernelDump, values: Values, backend: Backend) -> Iterator[Problem]:
    """Check set_dump (dump_mode 2): not with a list of kernels, and on O0/O1 only."""
    if dump.set_dump is not True:
        return
    if values.kernels:
        what = "set_dump and a list of kernels exclude each other."
        yield Problem("set_dump", what, "Leave one of them out.")
    if backend.name != "ascend-o0o1":
        what = f"MindSpore refuses set_dump (dump_mode 2) on {backend.title}."
        yield Problem("set_dump", what, "Leave it out, and choose with kernels.")


def _synchrony(dump: KernelDump, values: Values, backend: Backend) -> Iterator[Problem]:
    """Refuse a synchronous or asynchronous dump where the backend has only the other."""
    if dump.synchronous is None:
        return
    if not backend.knows("enable"):
        if dump.synchronous or not backend.asynchronous:
            yield Problem("synchronous", f"{backend.title} has one way of dumping.", "Leave it out.")
    elif dump.synchronous is False and not backend.asynchronous:
        yield Problem("synchronous", f"{backend.title} dumps synchronously only.", "Leave it out.")
    elif dump.synchronous is False and dump.save_kernel_args:
        what = "are saved in synchronous dumps only."
        yield Problem("save_kernel_args", what, "Leave out synchronous=False.")


RULES: tuple[Rule, ...] = (
    _unknown_options,
    _kinds_of_kernels,
    _statistics_of_saved,
    _statistics_need_npy,
    _statistics_need_data,
    _device_statistics,
    _debug_modes,
    _debug_directions,
    _debug_selection,
    _overflow_limit,
    _samples,
    _set_dump_mode,
    _synchrony,
)
"""All rules; spec/kernel-config.md names each with the sentence of the documents it comes from."""


def notes_of(dump: KernelDump, values: Values, backend: Backend) -> tuple[str, ...]:
    """Return what ``dump`` asks for without effect on ``backend``, each as ``option: why``."""
    return tuple(text for note in NOTES for text in note(dump, values, backend))


def _devices_of_cpu(dump: KernelDump, values: Values, backend: Backend) -> Iterator[str]:
    """Note a list of devices on a CPU, which has no devices; the documents keep the list."""
    if backend.name == "cpu" and dump.devices is not None:
        yield (
            "devices: has no effect: a CPU has no devices, so every rank dumps. To dump one rank, open the dump on "
            "that rank only."
        )


def _layout_of_cpu(dump: KernelDump, values: Values, backend: Backend) -> Iterator[str]:
    """Note that a choice of layouts has no effect on a CPU, which has one layout."""
    if backend.name == "cpu" and dump.trans_flag is False:
        yield "trans_flag: has no effect: a CPU has one layout."


def _unused_categories(dump: KernelDump, values: Values, backend: Backend) -> Iterator[str]:
    """Note a choice of statistics where none are computed."""
    tensors = dump.saved_data in (None, "tensor")
    if tensors and dump.statistic_category is not None and backend.knows("statistic_category"):
        yield "statistic_category: has no effect: saved_data is tensor, so there are no statistics."


def _sides_of_exception(dump: KernelDump, values: Values, backend: Backend) -> Iterator[str]:
    """Note outputs in a dump of failed kernels, which have no output."""
    if dump.op_debug_mode == 4 and dump.inputs is True and dump.outputs is True:
        yield "outputs: has no effect: op_debug_mode 4 dumps the inputs of a kernel that failed, which has no output."


NOTES: tuple[Note, ...] = (_devices_of_cpu, _layout_of_cpu, _unused_categories, _sides_of_exception)
"""All of them; spec/kernel-config.md names each."""
