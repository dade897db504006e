"""Whether two checkouts write the same files: `python -m bench.alike OLD NEW`. Exit code 1 where they do not.

Scripts with fixed seeds (`likeness/`) make the same dumps with the packages of each checkout, in the same folder, one
after the other, so that no path differs. Every file is compared byte by byte, once what depends on the moment (times,
process ids, addresses) is masked, and of a run with threads the numbers that the threads raced for. What differs is
told by cause, with the record, the slot, the key and both values. Differences that are meant are named in ALLOWED.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

ROOT = Path(__file__).parents[1]
LIKENESS = Path(__file__).parent / "likeness"
SCRIPTS = {"torch": "torch_dumps.py", "mindspore": "mindspore_dumps.py"}
EXAMPLES = 3


@attrs.frozen
class Difference:
    """One place where two dumps differ.

    cause: what many places may have in common: the file, the kind of record, the slot without its numbers, the change.
    where: the case, the file, the record, the slot and the key.
    """

    cause: str
    where: str
    old: Any
    new: Any


#: Differences that are meant: name -> (reason, whether it is this one).
ALLOWED: dict[str, tuple[str, Callable[[Difference], bool]]] = {
    "journal version 2": (
        "the journal's events have another form; it is no file of a finished dump",
        lambda d: d.cause.startswith("records.journal: "),
    ),
    "lost is told": (
        "a gradient that was going to come says lost where null said that none flows (issue 18, point 2)",
        lambda d: (
            " killed_" in d.where
            and (
                (d.old is None and '"lost"' in json.dumps(d.new))
                or "gradients are lost" in str(d.new)
                or (
                    d.cause.startswith("probe.txt: line added")
                    and re.search(r"\blost\b", str(d.new)) is not None
                )
            )
        ),
    ),
    "the order of counts": (
        "calls and modules are counted first, tensors last; they stood in the order in which the first of each came",
        lambda d: (
            set(d.old) <= {"tensors", "arrays", "calls", "modules"}
            if re.fullmatch(r"report.json: counts.\w+: order of keys", d.cause)
            else d.cause.startswith("probe.txt: line") and bool(_COUNTED.search(f"{d.old}{d.new}"))
        ),
    ),
    "an unfinished call": (
        "its output stands before its parameters, as that of a finished call",
        lambda d: d.cause == "dump.json: forward : order of keys" and "incomplete" in d.old,
    ),
    "late numbers": (
        "what tells of statistics (nan_count, unsupported) comes late with them, and stands before what did not",
        lambda d: (
            d.cause.endswith(": order of keys")
            and (" killed_late " in d.where or "_async_" in d.where)
            and d.old[0] == "requires_grad"
        ),
    ),
    "checksums": (
        "the object of a tensor with a file has the CRC-32 of the file's bytes (issue 19, point 1)",
        lambda d: d.cause.endswith("data_crc32: added"),
    ),
    "the journal's size": (
        "the report says how much of the journal the files hold, also where it can't be removed then (issue 19)",
        lambda d: d.cause == "report.json: journal: null -> {bytes}",
    ),
    "a wider list": (
        "the list names functions that an older MindSpore lacks, or this one has not (issue 19, point 21)",
        lambda d: d.cause.startswith("report.json: missing.mindspore."),
    ),
    "sets": (
        "a set's value is text, as msprobe's compare has no lists there",
        lambda d: d.cause.endswith(".value: [...] -> str") and str(d.new).startswith("{"),
    ),
    "infinities": (
        "a negative infinity has a space before it, as msprobe refuses what begins with a minus (issue 19, point 4)",
        lambda d: (
            str(d.new) == str(d.old).replace('"-Infinity"', '" -Infinity"').replace("-Infinity", " -Infinity")
        ),
    ),
}

_MASKS = [
    (re.compile(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"), b"<time>"),
    (re.compile(rb"^\[[A-Z]+\] \w+\([^)]*\):[-\d:. ]+", re.MULTILINE), b"<MindSpore's own log> "),
    (re.compile(rb"\bat 0x[0-9a-f]+"), b"at <address>"),
    (re.compile(rb"\b(proc|pid |process )\d+"), rb"\1<pid>"),
]
#: What `probe show` counts of a step.
_COUNTED = re.compile(r"  (seen|recorded): \d+ (tensors|arrays|calls|modules)\b")
#: A name's number, which threads race for: `Functional.gelu.12.forward`, `Module.3.Linear.forward.0`.
_NAME = re.compile(r"\b((?:[A-Z]\w*\.)[\w.]*?)\.(\d+)\.(forward|backward)\b")


# -- making the dumps ------------------------------------------------------------------------------------------------


def made(checkout: Path, python: str, script: str, folder: Path, cases: list[str]) -> None:
    """Make a framework's dumps with the packages of a checkout."""
    sources = sorted(str(path) for path in (checkout / "packages").glob("*/src"))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sources),
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "GLOG_v": "3",
    }
    command = [python, str(LIKENESS / script), str(folder), *cases]
    done = subprocess.run(command, env=environment, cwd=folder.parent, check=False)
    if done.returncode:
        raise RuntimeError(f"{script} ended with {done.returncode} in {checkout}")


# -- comparing files -------------------------------------------------------------------------------------------------


def masked(data: bytes) -> bytes:
    """Return the bytes without what depends on the moment."""
    for pattern, text in _MASKS:
        data = pattern.sub(text, data)
    return data


def brief(value: Any) -> str:
    """Return what kind of value it is."""
    if isinstance(value, dict):
        return "{" + ",".join(list(value)[:6]) + "}"
    if isinstance(value, list):
        return "[...]" if value else "[]"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return type(value).__name__


def slot_of(path: tuple[str | int, ...]) -> str:
    """Return a path without its numbers."""
    return ".".join("#" if isinstance(key, int) or key.isdigit() else key for key in path)


def kind_of(record: str) -> str:
    """Return what kind of record a name is of."""
    for kind in ("parameters_grad", "forward", "backward", "debug"):
        if kind in record.split("."):
            return kind
    return "record"


def json_differences(
    old: Any, new: Any, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[Any, str, Any, Any]]:
    """Yield (path, what differs, both values) for each place where two documents differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old:
            if key not in new:
                yield (*path, key), "missing", old[key], "<absent>"
        for key in new:
            if key not in old:
                yield (*path, key), "added", "<absent>", new[key]
        if list(old) != list(new) and set(old) == set(new):
            moved = next(i for i, pair in enumerate(zip(old, new, strict=True)) if pair[0] != pair[1])
            yield path, "order of keys", list(old)[moved : moved + 3], list(new)[moved : moved + 3]
        for key in old.keys() & new.keys():
            yield from json_differences(old[key], new[key], (*path, key))
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield path, f"length {len(old)} -> {len(new)}", old, new
        for i, (a, b) in enumerate(zip(old, new, strict=False)):
            yield from json_differences(a, b, (*path, i))
    elif type(old) is not type(new) or (old != new):
        yield path, f"{brief(old)} -> {brief(new)}", old, new


def of_json(where: str, name: str, old: bytes, new: bytes, equal: set[str]) -> Iterator[Difference]:
    """Compare two JSON files that are not the same bytes. equal: the files beside them that are."""
    one, other = json.loads(old), json.loads(new)
    if name == "report.json":
        for report in (one, other):
            for file in list(report.get("files") or {}):
                if file not in equal:  # its size and checksum follow from what differs in it
                    report["files"][file] = None
            if (report.get("journal") or {}).get("bytes"):
                report["journal"]["bytes"] = None
    count = 0
    for path, what, a, b in json_differences(one, other):
        count += 1
        inside = path[1:] if path[:1] == ("data",) else path
        record = str(inside[0]) if inside and name in ("dump.json", "debug.json", "construct.json") else ""
        kind = f"{kind_of(record)} " if record else ""
        place = slot_of(inside[1:] if record else inside)
        yield Difference(f"{name}: {kind}{place}: {what}", f"{where} {'/'.join(map(str, inside))}", a, b)
    if not count and one == other and name != "report.json":
        at = next(i for i, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1])
        yield Difference(
            f"{name}: the same JSON in other bytes", where, old[at - 40 : at + 40], new[at - 40 : at + 40]
        )


def of_text(where: str, name: str, old: bytes, new: bytes) -> Iterator[Difference]:
    """Compare two texts line by line."""
    lines, others = old.decode(errors="replace").splitlines(), new.decode(errors="replace").splitlines()
    for gone in [line for line in lines if line not in others]:
        yield Difference(f"{name}: line gone: {re.sub(r'[0-9]+', '#', gone)[:80]}", where, gone, "<absent>")
    for came in [line for line in others if line not in lines]:
        yield Difference(f"{name}: line added: {re.sub(r'[0-9]+', '#', came)[:80]}", where, "<absent>", came)
    if sorted(lines) == sorted(others):
        yield Difference(f"{name}: order of lines", where, len(lines), len(others))


def files(folder: Path) -> dict[str, Path]:
    """Return all files of a case by their path in it."""
    return {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}


def same_file_as(found: Mapping[str, Path]) -> dict[str, str]:
    """Return, for each file, the first that it is a link to."""
    first: dict[int, str] = {}
    return {name: first.setdefault(path.stat().st_ino, name) for name, path in found.items()}


def of_case(case: str, old: Path, new: Path) -> Iterator[Difference]:
    """Compare all files of a case."""
    before, after = files(old), files(new)
    for name in sorted(before.keys() | after.keys()):
        if name not in before or name not in after:
            what, there = ("missing", before) if name in before else ("added", after)
            size = there[name].stat().st_size
            values = (size, "<absent>") if name in before else ("<absent>", size)
            yield Difference(f"file {what}: {re.sub(r'[0-9]+', '#', name)}", f"{case} {name}", *values)
    common = [name for name in before if name in after]
    contents = {
        name: (masked(before[name].read_bytes()), masked(after[name].read_bytes())) for name in common
    }
    if case.startswith("threads"):
        contents = unraced(contents)
    equal = {name for name in common if contents[name][0] == contents[name][1]}
    links = same_file_as(before), same_file_as(after)
    for name in common:
        where, short = f"{case} {name}", Path(name).name
        modes = tuple(oct(side[name].stat().st_mode & 0o777) for side in (before, after))
        if modes[0] != modes[1]:
            yield Difference(f"mode of {short}", where, *modes)
        if links[0][name] != links[1].get(name):
            yield Difference(
                "links: a file that was linked is not, or to another", where, links[0][name], links[1][name]
            )
        if name in equal:
            continue
        one, other = contents[name]
        if short == "records.journal":
            yield Difference("records.journal: bytes differ", where, len(one), len(other))
        elif short.endswith(".json"):
            beside = {Path(n).name for n in equal if Path(n).parent == Path(name).parent}
            yield from of_json(where, short, one, other, beside)
        elif short.endswith((".txt", ".log")):
            yield from of_text(where, short, one, other)
        else:
            yield Difference(
                f"{Path(short).suffix} file: bytes differ", where, f"{len(one)} bytes", f"{len(other)} bytes"
            )


# -- threads ---------------------------------------------------------------------------------------------------------


def unraced(contents: dict[str, tuple[bytes, bytes]]) -> dict[str, tuple[bytes, bytes]]:
    """Give calls the numbers of the order of what they were given, and sort what threads wrote in turn.

    Each call of such a case has values that no other has, so that a call keeps its number in all files.
    """
    (dump,) = (name for name in contents if Path(name).name == "dump.json")
    ranks = [_ranks(contents[dump][side]) for side in (0, 1)]
    return {
        name: (_sorted(name, both[0], ranks[0]), _sorted(name, both[1], ranks[1]))
        for name, both in contents.items()
    }


def _ranks(dump: bytes) -> dict[str, str]:
    """Return new names of the calls of a dump, by the order of their content."""
    kinds: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for name, record in json.loads(dump).get("data", {}).items():
        found = _NAME.search(name)
        if found and found[3] == "forward":
            kinds[found[1]].append((json.dumps(record, sort_keys=True), f"{found[1]}.{found[2]}"))
    return {old: f"{kind}.{i}" for kind, calls in kinds.items() for i, (_, old) in enumerate(sorted(calls))}


def _sorted(name: str, data: bytes, ranks: dict[str, str]) -> bytes:
    text = _NAME.sub(lambda m: f"{ranks.get(f'{m[1]}.{m[2]}', f'{m[1]}.{m[2]}')}.{m[3]}", data.decode())
    if not name.endswith(".json"):
        return "\n".join(sorted(text.splitlines())).encode()
    document = json.loads(text)
    if name.endswith("stack.json"):
        document = sorted((sorted(names), lines) for names, lines in document.values())
    elif name.endswith("dump.json"):
        document["data"] = dict(sorted(document["data"].items()))
    elif name.endswith("construct.json"):
        document = dict(sorted(document.items()))
    elif name.endswith("report.json"):
        document["files"] = document["norms"] = None  # of equal norms the first that a thread saw
    return json.dumps(document).encode()


# -- telling ---------------------------------------------------------------------------------------------------------


def told(differences: list[Difference]) -> int:
    """Print the differences by cause; return how many are not allowed."""
    causes: dict[str, list[Difference]] = defaultdict(list)
    allowed: dict[str, int] = defaultdict(int)
    for difference in differences:
        for name, (_, is_it) in ALLOWED.items():
            if is_it(difference):
                allowed[name] += 1
                break
        else:
            causes[difference.cause].append(difference)
    for cause, found in sorted(causes.items(), key=lambda item: -len(item[1])):
        print(f"\n{len(found)} x {cause}")
        for difference in found[:EXAMPLES]:
            print(f"    {difference.where}")
            for word, value in (("old", difference.old), ("new", difference.new)):
                text = value if isinstance(value, str) else repr(value)
                print(f"        {word}: {text[:300]}{'...' if len(text) > 300 else ''}")
    for name, count in allowed.items():
        print(f"\n{count} x allowed, {name}: {ALLOWED[name][0]}")
    return sum(map(len, causes.values()))


def main() -> int:
    """Make both sets of dumps and compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--torch", default=sys.executable, help="a python with torch; '' for none")
    parser.add_argument(
        "--mindspore",
        default=os.environ.get("PROBE_MINDSPORE_PYTHON", str(ROOT / ".venv-mindspore/bin/python")),
    )
    parser.add_argument(
        "--cases", nargs="+", default=[], help="some cases of one framework only (the other needs '')"
    )
    parser.add_argument("--keep", type=Path, help="leave the dumps here, in `old` and `new`")
    given = parser.parse_args()
    differences, cases, compared = [], 0, 0
    with tempfile.TemporaryDirectory(prefix="probe-alike-") as temporary:
        base = (given.keep or Path(temporary)).resolve()
        for framework, python in (("torch", given.torch), ("mindspore", given.mindspore)):
            if not python:
                continue
            for side, checkout in (("old", given.old), ("new", given.new)):
                work, home = base / "work", base / side / framework
                shutil.rmtree(home, ignore_errors=True)
                shutil.rmtree(work, ignore_errors=True)
                work.mkdir(parents=True)
                made(checkout.resolve(), python, SCRIPTS[framework], work / framework, given.cases)
                home.parent.mkdir(exist_ok=True)
                (work / framework).rename(home)
            old, new = base / "old" / framework, base / "new" / framework
            failed = sorted(path.parent.name for path in old.glob("*/failed.txt"))
            if failed:
                raise RuntimeError(f"these cases do not run with {given.old}: {', '.join(failed)}")
            for case in sorted(path.name for path in old.iterdir()):
                found = list(of_case(case, old / case, new / case))
                differences += [attrs.evolve(d, where=f"{framework} {d.where}") for d in found]
                cases, compared = cases + 1, compared + len(files(old / case))
    count = told(differences)
    print(f"\n{cases} dumps, {compared} files: {count} differences that nobody allowed.")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
