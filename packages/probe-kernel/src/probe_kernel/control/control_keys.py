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

#: Keys whose value has a type: the type, its name, and an example.
_TYPES: dict[str, tuple[type, str, str]] = {
    "path": (str, "text", '"/data/dump"'),
    "iteration": (str, "text", '"0|5-8" or "all"'),
    "kernels": (list, "a list", '["Default/conv1-Conv2d/Conv2D-op12"]'),
    "statistic_category": (list, "a list", '["max", "min"]'),
}
#: Keys that are not an option of the same name with the same value.
_TRANSLATED = (*REQUIRED, "path", "statistic_category", "enable")


@define
class KeyReader:
    """Read the keys of a control file as options of a KernelDump. notes: as in a `ControlFile`."""

    backend: Backend
    problems: list[Problem] = field(factory=list)
    notes: list[str] = field(factory=list)

    def read(self, document: Any) -> dict[str, Any]:
        """Return the options that the document asks for."""
        if not isinstance(document, dict):
            what = f"holds {_short(document)}, and no sections."
            self.problem("the file", what, f'Write {{"{_COMMON}": {{...}}}}.')
            return {}
        for name in document:
            if name not in _KEYS:
                self.unknown(name, _KEYS)
        given: dict[str, Any] = {}
        for section, known in _KEYS.items():
            keys = document.get(section, {})
            if not isinstance(keys, dict):
                self.problem(section, f"is {_short(keys)}, and should hold keys.", "Write {...}.")
            elif section in document and section == _E2E and not self.backend.e2e:
                self.notes.append(f"{_E2E}: {self.backend.title} does not read this section.")
            else:
                given |= {key: value for key, value in keys.items() if self._counts(key, value, known)}
        common = document.get(_COMMON)
        if _COMMON not in document:
            what = "is missing; MindSpore refuses the file."
            self.problem(_COMMON, what, f'Write {{"{_COMMON}": {{...}}}}.')
        elif not isinstance(common, dict):
            return {}
        else:
            for key, example in REQUIRED.items():
                if key not in common and self.backend.knows(key):
                    self.problem(key, "is missing; MindSpore refuses the file.", f'Write "{key}": {example}.')
        return dict(self._options(given))

    def _counts(self, key: str, value: Any, known: set[str]) -> bool:
        """Return whether a key has an effect; if not, record why."""
        type_, called, example = _TYPES.get(key, (object, "", ""))
        if not self.backend.knows(key):
            if key in known:
                self.notes.append(f"{key}: has no effect: {self.backend.title} does not read it.")
            else:
                self.unknown(key, known)
        elif value is None:
            self.problem(key, "is null; MindSpore wants a value.", "Write one, or remove the key.")
        elif not isinstance(value, type_):
            self.problem(key, f"is {_short(value)}, not {called}.", f"Write e.g. {example}.")
        else:
            return True
        return False

    def _options(self, given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        yield from (
            (key, value) for key, value in given.items() if key == "net_name" or key not in _TRANSLATED
        )
        yield "path", given.get("path") or None
        if "iteration" in given:
            plain = "".join(given["iteration"].split())
            if plain != given["iteration"]:
                self.notes.append(
                    f'iteration: MindSpore refuses the blanks (the documents have them): write "{plain}".'
                )
            yield "iterations", plain
        yield from self._kernels(given)
        devices = given.get("support_device")
        if devices == list(range(8)):  # the default, the same as no option
            devices = None
            if self.backend.name == "cpu":
                self.notes.append("support_device: has no effect on a CPU, but must stay in the file.")
        yield "devices", devices
        categories = given.get("statistic_category")
        if categories == [] and given.get("saved_data", "tensor") == "tensor":
            categories = None  # msprobe writes it so where no statistics are wanted
        yield "statistic_category", categories
        sides = {0: (True, True), 1: (True, False), 2: (False, True)}
        which = given.get("input_output", 0)
        if type(which) is int and which in sides:
            yield from zip(("inputs", "outputs"), sides[which], strict=True)
        else:
            remedy = "Write 0 for both, 1 for inputs, 2 for outputs."
            self.problem("input_output", f"is {_short(which)}.", remedy)
        if "enable" in given:
            yield "synchronous", given["enable"]
        elif self.backend.asynchronous and self.backend.knows("enable"):
            self.notes.append("enable: is left out, so the dump is asynchronous.")
            yield "synchronous", False
        elif self.backend.knows("enable"):
            self.notes.append(
                f'enable: is left out. The documents want "enable": true on {self.backend.title}.'
            )

    def _kernels(self, given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        mode, kernels = given.get("dump_mode", 0), given.get("kernels", [])
        if type(mode) is not int or mode not in (0, 1, 2):
            remedy = "Write 0 for all kernels, 1 for those in kernels, 2 for set_dump."
            self.problem("dump_mode", f"is {_short(mode)}.", remedy)
            mode = 1
        if mode == 0 and kernels:
            self.notes.append(
                "kernels: have no effect: dump_mode 0 dumps every kernel (seen on 2.10). To dump these, write "
                '"dump_mode": 1.'
            )
        elif mode == 1 and not kernels and "kernels" in given:
            self.problem("kernels", "are empty, and dump_mode 1 dumps those alone.", 'Write "dump_mode": 0.')
        else:
            yield "kernels", tuple(kernels)
        yield "set_dump", mode == 2

    def problem(self, where: str, what: str, remedy: str) -> None:
        """Record a problem."""
        self.problems.append(Problem(where, what, remedy))

    def unknown(self, key: str, known: Mapping[str, Any] | set[str]) -> None:
        """Record a key that no backend reads."""
        what = "is not a key of a control file; MindSpore passes over it without a word."
        self.problem(key[:80], what, did_you_mean(key, known) or "Remove it.")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
