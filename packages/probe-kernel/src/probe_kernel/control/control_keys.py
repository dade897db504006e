"""Translate the keys of a control file, MindSpore's JSON for its kernel dump, to options of a `KernelDump`, and note
which keys are wrong or have no effect.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import Factory, define
from probe_format.errors import Problem
from probe_format.excerpts import cut
from probe_format.suggest import did_you_mean
from probe_runtime.config import declared_keys

from .backends import BACKENDS, Backend
from .description import KernelDump

_COMMON, _E2E = "common_dump_settings", "e2e_dump_settings"
#: Keys without which MindSpore refuses the file (measured, 2.10), and what to write.
REQUIRED = {
    "dump_mode": "0", "net_name": '"Net"', "iteration": '"all"', "input_output": "0", "kernels": "[]",
    "support_device": "[0, 1, 2, 3, 4, 5, 6, 7]",
}  # fmt: skip
_KEYS = {section: {key for b in BACKENDS.values() for key in getattr(b, name)}
         for section, name in ((_COMMON, "common"), (_E2E, "e2e"))}  # fmt: skip
#: Keys that are translated rather than copied -> their type, and what to write; a number is 0, 1 or 2.
_TYPES: dict[str, tuple[type, str, str]] = {
    "path": (str, "not text", 'Write e.g. "/data/dump".'),
    "iteration": (str, "not text", 'Write e.g. "0|5-8" or "all".'),
    "kernels": (list, "not a list", 'Write e.g. ["Default/conv1-Conv2d/Conv2D-op12"].'),
    "statistic_category": (list, "not a list", 'Write e.g. ["max", "min"].'),
    "support_device": (list, "not a list of numbers", "Write e.g. [0, 1]."),
    "input_output": (int, "not a choice", "Write 0 for both, 1 for inputs, 2 for outputs."),
    "dump_mode": (int, "not a mode", "Write 0 for all kernels, 1 for those in kernels, 2 for set_dump."),
}
_OPTIONS = declared_keys(KernelDump)
#: Keys that MindSpore checks also on backends that do not use them (2.10, CPU); overflow_number it refuses there.
_CHECKED = ("stat_calc_mode", "device_stat_precision_mode", "sample_mode", "sample_num", "save_kernel_args")


@define
class KeyReader:
    """Read the keys of a control file as options of a KernelDump.

    options: what the file asks for.
    problems: what is wrong with the file.
    notes: what in the file has no effect, in sentences.
    refused: what in the file MindSpore refuses although its documents have it, in sentences.
    """

    backend: Backend
    options: dict[str, Any] = Factory(dict)
    problems: list[Problem] = Factory(list)
    notes: list[str] = Factory(list)
    refused: list[str] = Factory(list)

    def read(self, document: Any) -> None:
        example = f'Write {{"{_COMMON}": {{...}}}}.'
        if not isinstance(document, dict):
            self._problem("the file", f"holds {cut(repr(document), 60)}, and no sections.", example)
            return
        for name in document:
            if name not in _KEYS:
                self._unknown(name, _KEYS)
        given = self._given(document)
        common = document.get(_COMMON)
        if _COMMON not in document:
            self._problem(_COMMON, "is missing; MindSpore refuses the file.", example)
        elif isinstance(common, dict):
            for key, value in REQUIRED.items():
                if key not in common:
                    self._problem(key, "is missing; MindSpore refuses the file.", f'Write "{key}": {value}.')
            self._translate(given)

    def _given(self, document: Mapping[str, Any]) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for section, known in _KEYS.items():
            keys = document.get(section, {})
            if not isinstance(keys, dict):
                self._problem(section, f"is {cut(repr(keys), 60)}, and should hold keys.", "Write {...}.")
            elif section == _E2E and section in document and not self.backend.e2e:
                self.notes.append(f"{_E2E}: {self.backend.title} does not read this section.")
            else:
                given |= {key: value for key, value in keys.items() if self._counts(key, value, known)}
        return given

    def _counts(self, key: str, value: Any, known: set[str]) -> bool:
        kind, what, remedy = _TYPES.get(key, (None, "", ""))
        shown = cut(repr(value), 60)
        if key not in known:
            self._unknown(key, known)
        elif not self.backend.knows(key):
            if key == "overflow_number" or (key in _CHECKED and _OPTIONS[key].check(value, key)[1]):
                what = f"is {shown}. {self.backend.title} does not use it, and MindSpore refuses the file."
                self._problem(key, what, "Remove it.")
            else:
                self.notes.append(f"{key}: has no effect: {self.backend.title} does not read it.")
        elif value is None:
            self._problem(key, "is null; MindSpore wants a value.", "Write one, or remove the key.")
        elif kind and (type(value) is not kind or (kind is int and value not in (0, 1, 2))):
            self._problem(key, f"is {shown}, {what}.", remedy)
        else:
            return True
        return False

    def _translate(self, given: Mapping[str, Any]) -> None:
        options = self.options
        options |= {key: value for key, value in given.items() if key in _OPTIONS and key not in _TYPES}
        options["path"] = given.get("path") or None
        if "iteration" in given:
            options["iterations"] = "".join(given["iteration"].split())
            if options["iterations"] != given["iteration"]:
                what = "iteration: MindSpore refuses the blanks (the documents have them)"
                self.refused.append(f'{what}: write "{options["iterations"]}".')
        sides, mode = given.get("input_output", 0), given.get("dump_mode")
        options |= {"inputs": sides != 2, "outputs": sides != 1, "set_dump": mode == 2}
        self._kernels(mode, given.get("kernels"))
        options["devices"] = given.get("support_device")
        if options["devices"] == list(range(8)):  # the default, the same as no option
            options["devices"] = None
            if self.backend.name == "cpu":
                self.notes.append("support_device: has no effect on a CPU, but must stay in the file.")
        categories = given.get("statistic_category")
        if categories != [] or given.get("saved_data", "tensor") != "tensor":
            options["statistic_category"] = categories  # msprobe writes [] where no statistics are wanted
        if "enable" in given:
            options["synchronous"] = given["enable"]
        elif self.backend.knows("enable"):
            why = f'. The documents want "enable": true on {self.backend.title}.'
            if self.backend.asynchronous:
                options["synchronous"], why = False, ", so the dump is asynchronous."
            self.notes.append(f"enable: is left out{why}")

    def _kernels(self, mode: Any, kernels: list[Any] | None) -> None:
        if mode == 0 and kernels:
            self.notes.append(
                "kernels: have no effect: dump_mode 0 dumps every kernel (seen on 2.10). To dump these, write "
                '"dump_mode": 1.'
            )
        elif mode == 1 and kernels == []:
            self._problem("kernels", "are empty, and dump_mode 1 dumps those alone.", 'Write "dump_mode": 0.')
        else:
            self.options["kernels"] = tuple(kernels or ())

    def _problem(self, where: str, what: str, remedy: str) -> None:
        self.problems.append(Problem(where, what, remedy))

    def _unknown(self, key: str, known: Iterable[str]) -> None:
        what = "is not a key of a control file; MindSpore passes over it without a word."
        self._problem(key[:80], what, did_you_mean(key, known) or "Remove it.")
