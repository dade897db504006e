"""Find the entries of a configuration mapping that have an effect, and the problems of the others."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from attrs import Factory, define, frozen
from probe_format.errors import Problem
from probe_format.excerpts import brief
from probe_format.suggest import did_you_mean

from .config import KEYS, SECTIONS
from .keys import IDLE_KEYS, IDLE_SECTIONS, Key

LocateKey = Callable[[str], str]
"""Takes the path of a key and returns where the user finds it: the path itself, or with file and line."""


@frozen
class ConfigEntry:
    """A key that has an effect.

    key: its name.
    value: its value as given.
    where: where it was given.
    """

    key: str
    value: Any
    where: str


@define
class Findings:
    """What was found about a configuration.

    keys: the keys that its level may have.
    problems: why it is refused.
    warnings: what the user learns of an accepted one.
    """

    keys: Mapping[str, Key] = KEYS
    problems: list[Problem] = Factory(list)
    warnings: list[str] = Factory(list)

    def check(self, entry: ConfigEntry) -> Any:
        """Return the entry's value as Probe keeps it, and add its problems."""
        value, problems = self.keys[entry.key].check(entry.value, entry.where)
        self.problems.extend(problems)
        return value


def entries(
    file: Mapping[str, Any], task: object, locate: LocateKey, findings: Findings
) -> Iterator[ConfigEntry]:
    """Yield every entry with an effect: those at the top, then those of the task's section.

    file: the mapping.
    task: the task as given, which may be wrong.
    locate: returns where a key was given.
    findings: gets the problems and warnings of all entries.
    """
    sections = []
    for key, value in file.items():
        if key in SECTIONS or key in IDLE_SECTIONS:
            sections.append(key)
        elif key not in findings.keys:
            _foreign(key, value, locate(str(key)) or "the key", (*findings.keys, *SECTIONS), findings)
        elif value is not None:
            yield ConfigEntry(key, value, locate(key))
    for key in sections:
        section = file[key]
        if section is None:
            continue
        if not isinstance(section, Mapping):
            what = f"must hold keys and values, not {brief(section)}."
            findings.problems.append(Problem(locate(key), what, 'Write e.g. {"list": []}.'))
        elif key in IDLE_SECTIONS:
            why = IDLE_SECTIONS[key]
            findings.warnings.append(f"{locate(key)}: this section has no effect in Probe. {why}")
        elif key == task or task not in SECTIONS:  # a wrong task: report on every section
            yield from _section(key, section, file, locate, findings)
        else:
            _check_unused(key, section, locate, task, findings)


def _section(
    task: str, section: Mapping[str, Any], top: Mapping[str, Any], locate: LocateKey, findings: Findings
) -> Iterator[ConfigEntry]:
    inside = [k for k, v in findings.keys.items() if v.section]
    for key, value in section.items():
        where = locate(f"{task}.{key}")
        if key in inside:
            if value is None:
                continue
            if top.get(key) not in (None, value):
                findings.problems.append(
                    Problem(where, f"{brief(key)} also stands at the top, with another value.", "Keep one.")
                )
            yield ConfigEntry(key, value, where)
        elif key in findings.keys:
            what = f"{brief(key)} does not belong in this section."
            findings.problems.append(Problem(where, what, "Move it to the top level."))
        else:
            _foreign(key, value, where, inside, findings)


def _check_unused(
    task: str, section: Mapping[str, Any], locate: LocateKey, now: object, findings: Findings
) -> None:
    """Turn the problems of a section into warnings, as its task is not the one that runs (``now``)."""
    own = Findings(findings.keys)
    for entry in _section(task, section, {}, locate, own):
        own.check(entry)
    findings.warnings.extend(own.warnings)
    findings.warnings.extend(f"{p} (Without effect as long as task is {brief(now)}.)" for p in own.problems)


def _foreign(key: object, value: object, where: str, known: Iterable[str], findings: Findings) -> None:
    if key in IDLE_KEYS:
        findings.warnings.append(f"{where}: has no effect in Probe: {IDLE_KEYS[str(key)]}.")
    else:
        known = tuple(known)
        hint = did_you_mean(str(key), known) or f"Known here: {', '.join(known)}."
        findings.problems.append(Problem(where, f"{brief(key)} is not a key of the configuration.", hint))
