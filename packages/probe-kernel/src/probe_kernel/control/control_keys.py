"""Translate the keys of a control file to options of a `KernelDump`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from attrs import define, field
from probe_format.errors import Problem
from probe_format.suggest import did_you_mean

from .backends import BACKENDS, Backend

__all__ = ["REQUIRED", "KeyReader"]

_COMMON, _E2E = "common_dump_settings", "e2e_dump_settings"
#: Keys without which MindSpore refuses the file (measured, 2.10), and what to write.
REQUIRED = {
    "dump_mode": "0", "net_name": '"Net"', "iteration": '"all"', "input_output": "0", "kernels": "[]",
    "support_device": "[0, 1, 2, 3, 4, 5, 6, 7]",
}  # fmt: skip
_KEYS = {section: {key for b in BACKENDS.values() for key in getattr(b, name)}
         for section, name in ((_COMMON, "common"), (_E2E, "e2e"))}  # fmt: skip


@define
class KeyReader:
    """Read the keys of a control file as options of a KernelDump.

    options: what the file asks for.
    problems: what is wrong with it.
    notes: what in it has no effect, or should be written differently, in sentences.
    """

    backend: Backend
    options: dict[str, Any] = field(factory=dict)
    problems: list[Problem] = field(factory=list)
    notes: list[str] = field(factory=list)

    def read(self, document: Any) -> None:
        """Read every key of the document."""
        if not isinstance(document, dict):
            self.problem(
                "the file", f"holds {_short(document)}, and no sections.", f'Write {{"{_COMMON}": {{...}}}}.'
            )
            return
        for name in document:
            if name not in _KEYS:
                self.unknown(name, _KEYS)
        given: dict[str, Any] = {}
        for section, known in _KEYS.items():
            if section not in document:
                continue
            keys = document[section]
            if not isinstance(keys, dict):
                self.problem(section, f"is {_short(keys)}, and should hold keys.", "Write {...}.")
            elif section == _E2E and not self.backend.e2e:
                self.notes.append(f"{_E2E}: {self.backend.title} does not read this section.")
            else:
                given |= {key: value for key, value in keys.items() if self._counts(key, value, known)}
        if not isinstance(document.get(_COMMON, {}), dict):
            return
        if _COMMON not in document:
            self.problem(
                _COMMON, "is missing; MindSpore refuses the file.", f'Write {{"{_COMMON}": {{...}}}}.'
            )
        else:
            for key, example in REQUIRED.items():
                if key not in document[_COMMON] and self.backend.knows(key):
                    self.problem(key, "is missing; MindSpore refuses the file.", f'Write "{key}": {example}.')
        for name, value in self._options(given):
            self.options[name] = value

    def _counts(self, key: str, value: Any, known: set[str]) -> bool:
        """Return whether a key has an effect; if not, record why."""
        if self.backend.knows(key):
            if value is None:
                self.problem(key, "is null; MindSpore wants a value.", "Write one, or remove the key.")
            return value is not None
        if key in known:
            self.notes.append(f"{key}: has no effect: {self.backend.title} does not read it.")
        else:
            self.unknown(key, known)
        return False

    def _options(self, given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        for key in (
            "net_name", "saved_data", "op_debug_mode", "file_format", "overflow_number", "trans_flag", "stat_calc_mode",
            "device_stat_precision_mode", "sample_mode", "sample_num", "save_kernel_args",
        ):  # fmt: skip
            if key in given:
                yield key, given[key]
        yield from self._path(given)
        yield from self._iterations(given)
        yield from self._lists(given)
        if "input_output" in given:
            sides = {0: (True, True), 1: (True, False), 2: (False, True)}
            which = given["input_output"]
            if type(which) is int and which in sides:
                yield "inputs", sides[which][0]
                yield "outputs", sides[which][1]
            else:
                self.problem(
                    "input_output", f"is {_short(which)}.", "Write 0 for both, 1 for inputs, 2 for outputs."
                )
        if self.backend.knows("enable"):
            yield from self._enable(given)

    def _path(self, given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        path = given.get("path")
        if path is None or isinstance(path, str):
            yield "path", path or None
        else:
            self.problem("path", f"is {_short(path)}, not text.", 'Write e.g. "/data/dump".')

    def _iterations(self, given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        iteration = given.get("iteration")
        if isinstance(iteration, str):
            plain = "".join(iteration.split())
            if plain != iteration:
                self.notes.append(
                    f'iteration: MindSpore refuses the blanks (the documents have them): write "{plain}".'
                )
            yield "iterations", plain
        elif "iteration" in given:
            self.problem("iteration", f"is {_short(iteration)}, not text.", 'Write e.g. "0|5-8" or "all".')

    def _lists(self, given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        mode, kernels = given.get("dump_mode", 0), given.get("kernels", [])
        if type(mode) is not int or mode not in (0, 1, 2):
            self.problem(
                "dump_mode",
                f"is {_short(mode)}.",
                "Write 0 for all kernels, 1 for those in kernels, 2 for set_dump.",
            )
            mode = 1
        if not isinstance(kernels, list):
            self.problem(
                "kernels",
                f"is {_short(kernels)}, not a list.",
                'Write e.g. ["Default/conv1-Conv2d/Conv2D-op12"].',
            )
        elif mode == 0 and kernels:
            self.notes.append(
                "kernels: have no effect: dump_mode 0 dumps every kernel (seen on 2.10). To dump these, write "
                '"dump_mode": 1.'
            )
        elif mode == 1 and not kernels and "kernels" in given:
            self.problem("kernels", "are empty, and dump_mode 1 dumps those alone.", 'Write "dump_mode": 0.')
        else:
            yield "kernels", tuple(kernels)
        yield "set_dump", mode == 2
        if "support_device" in given:
            devices = given["support_device"]
            if devices == list(range(8)):  # the default, the same as no option
                devices = None
                if self.backend.name == "cpu":
                    self.notes.append("support_device: has no effect on a CPU, but must stay in the file.")
            yield "devices", devices
        categories = given.get("statistic_category")
        if categories == [] and given.get("saved_data", "tensor") == "tensor":
            categories = None  # msprobe writes it so where no statistics are wanted
        if categories is not None:
            if not isinstance(categories, list):
                what = f"is {_short(categories)}, not a list."
                self.problem("statistic_category", what, 'Write e.g. ["max", "min"].')
            else:
                yield "statistic_category", categories

    def _enable(self, given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        if "enable" in given:
            yield "synchronous", given["enable"]
        elif self.backend.asynchronous:
            self.notes.append("enable: is left out, so the dump is asynchronous.")
            yield "synchronous", False
        else:
            self.notes.append(
                f'enable: is left out. The documents want "enable": true on {self.backend.title}.'
            )

    def problem(self, where: str, what: str, remedy: str) -> None:
        """Record a problem."""
        self.problems.append(Problem(where, what, remedy))

    def unknown(self, key: str, known: Mapping[str, Any] | set[str]) -> None:
        """Record a key that no backend reads."""
        remedy = did_you_mean(key, known) or "Remove it."
        self.problem(
            key[:80], "is not a key of a control file; MindSpore passes over it without a word.", remedy
        )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
