"""Find options without effect on a backend that are still accepted, because the documents use them there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .backends import Backend
from .description import KernelDump
from .option_checks import Values

__all__ = ["NOTES", "devices_of_cpu", "layout_of_cpu", "notes_of", "sides_of_exception", "unused_categories"]

Note = Callable[[KernelDump, Values, Backend], Iterator[str]]


def notes_of(dump: KernelDump, values: Values, backend: Backend) -> tuple[str, ...]:
    """Return what ``dump`` asks for without effect on ``backend``, each as ``option: why``."""
    return tuple(text for note in NOTES for text in note(dump, values, backend))


def devices_of_cpu(dump: KernelDump, values: Values, backend: Backend) -> Iterator[str]:
    """Note a list of devices on a CPU, which has no devices; the documents keep the list."""
    if backend.name == "cpu" and dump.devices is not None:
        yield (
            "devices: has no effect: a CPU has no devices, so every rank dumps. To dump one rank, open the dump on "
            "that rank only."
        )


def layout_of_cpu(dump: KernelDump, values: Values, backend: Backend) -> Iterator[str]:
    """Note that a choice of layouts has no effect on a CPU, which has one layout."""
    if backend.name == "cpu" and dump.trans_flag is False:
        yield "trans_flag: has no effect: a CPU has one layout."


def unused_categories(dump: KernelDump, values: Values, backend: Backend) -> Iterator[str]:
    """Note a choice of statistics where none are computed."""
    tensors = dump.saved_data in (None, "tensor")
    if tensors and dump.statistic_category is not None and backend.knows("statistic_category"):
        yield "statistic_category: has no effect: saved_data is tensor, so there are no statistics."


def sides_of_exception(dump: KernelDump, values: Values, backend: Backend) -> Iterator[str]:
    """Note outputs in a dump of failed kernels, which have no output."""
    if dump.op_debug_mode == 4 and dump.inputs is True and dump.outputs is True:
        yield "outputs: has no effect: op_debug_mode 4 dumps the inputs of a kernel that failed, which has no output."


NOTES: tuple[Note, ...] = (devices_of_cpu, layout_of_cpu, unused_categories, sides_of_exception)
"""All of them; spec/kernel-config.md names each."""
