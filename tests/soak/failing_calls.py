"""Let one system call after another fail under a short run, and look at what it left."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import probe_format
import pytest
from killing import Lines, Server, gone, serving
from probe_format.cli.main import main as probe
from probe_format.read.verify import verify

__all__ = ["FAULTS", "Check", "Fault", "Ran", "check_command", "check_dump", "said", "sweep"]

HERE = Path(__file__).parent
OPEN, CREATE, WRITE, CLOSE, RENAME, MKDIR, UNLINK, SYNC, TRUNCATE, LINK, STAT, READ, LOCK = range(13)
MAKING = (CREATE, WRITE, MKDIR, LINK)
ALL = tuple(range(13))


@attrs.frozen
class Fault:
    """What goes wrong. kinds: of calls. code: an errno, 0 for a half write, -1 a kill, -2 a kill after a half write.

    lasting: whether all later calls of those kinds fail, too. harmless: whether nothing may be lost.
    """

    name: str
    code: int
    kinds: tuple[int, ...]
    lasting: bool = False
    harmless: bool = False

    @property
    def words(self) -> str:
        return os.strerror(self.code) if self.code > 0 else ""


FAULTS = (
    Fault("full", errno.ENOSPC, MAKING),
    Fault("full from then on", errno.ENOSPC, MAKING, lasting=True),
    Fault("quota", errno.EDQUOT, MAKING),
    Fault("broken", errno.EIO, ALL),
    Fault("broken from then on", errno.EIO, ALL, lasting=True),
    Fault("forbidden", errno.EACCES, (OPEN, CREATE, RENAME, MKDIR, UNLINK, LINK)),
    Fault("forbidden from then on", errno.EACCES, (CREATE, RENAME, MKDIR, UNLINK, LINK), lasting=True),
    Fault("too many files", errno.EMFILE, (OPEN, CREATE)),
    Fault("too many files from then on", errno.EMFILE, (OPEN, CREATE), lasting=True),
    Fault("interrupted", errno.EINTR, (OPEN, CREATE, WRITE, READ, TRUNCATE), harmless=True),
    # Python doesn't make these again; POSIX has no EINTR for most of them, and after close() it would be wrong.
    Fault("interrupted, no second try", errno.EINTR, (STAT, CLOSE, RENAME, MKDIR, UNLINK, LINK, LOCK)),
    Fault("half", 0, (WRITE,), harmless=True),
    Fault("halves", 0, (WRITE,), lasting=True, harmless=True),
    Fault("killed", -1, ALL),
    Fault("killed in a write", -2, (WRITE,)),
)


@cache
def _compiled(folder: Path) -> Path:
    shim = folder / "failing_calls.so"
    words = ["cc", "-shared", "-fPIC", "-O1", "-o", str(shim), str(HERE / "failing_calls.c")]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    return shim


@contextlib.contextmanager
def server_of(program: str, folder: Path) -> Iterator[Server]:
    """Start the server of one package's runs. folder: for the shim."""
    if not shutil.which("cc"):
        pytest.skip("needs a C compiler for the shim that has system calls fail")
    with serving(HERE / program, LD_PRELOAD=str(_compiled(folder))) as server:
        yield server


@attrs.frozen
class Ran:
    """What a run left. result: None where it was killed. acknowledged: before the call that failed."""

    folder: Path
    acknowledged: tuple[str, ...]
    result: str | None
    hit: str
    counts: tuple[int, ...]
    printed: str


#: Takes a run that nothing failed in, another, and its fault; what is wrong with the other.
Check = Callable[[Ran, Ran, Fault], Iterable[str]]


def ran(server: Server, folder: Path, mode: str, fault: Fault | None = None, nth: int = 0) -> Ran:
    """Run once below a new folder, where the n-th call fails."""
    folder.mkdir(parents=True)
    out = folder.with_name(f"{folder.name}.out")
    out.unlink(missing_ok=True)
    kinds = sum(1 << kind for kind in fault.kinds) if fault else 0
    numbers = [kinds, nth, fault.code, int(fault.lasting)] if fault else [0, 0, 0, 0]
    lines = Lines(server.said[0])
    pid = server.launch(folder=str(folder), out=str(out), mode=mode, fault=numbers)  # type: ignore[arg-type]
    gone(pid)
    lines.drain()
    said = [line for line in lines.seen if line != "closed"]
    result, hit, counts = None, "", ()
    if said and said[-1].startswith("ended "):
        result, hit, counts = json.loads(said.pop().removeprefix("ended "))
    printed = out.read_text(errors="replace") if out.exists() else ""
    return Ran(folder, tuple(said), result, hit, tuple(counts), printed)


def sweep(program: str, folder: Path, modes: Sequence[str], check: Check, *, samples: int = 30) -> list[str]:
    """What is wrong after each fault. samples: how many faults, drawn by chance; with PROBE_SOAK it is all of them.

    program: the server of the runs. folder: an empty one. modes: of the runs. check: takes the whole run, another, and
    its fault.
    """
    wrong = []
    with server_of(program, folder) as server:
        for mode in modes:
            whole = ran(server, folder / mode, mode)
            assert whole.result, whole.printed
            # All run in one place: a dump holds its path, and a checksum of what holds it.
            whole = attrs.evolve(whole, folder=whole.folder.rename(folder / f"{mode}.whole"))
            for number, (fault, nth) in enumerate(
                _chosen(whole.counts, samples // len(modes), program + mode)
            ):
                run = ran(server, folder / mode, mode, fault, nth)
                where = f"{mode}, {fault.name} at {nth} ({run.hit.replace(str(run.folder), '')}): "
                wrong += (found := [where + each for each in check(whole, run, fault)])
                if found:
                    print(*found, sep="\n", flush=True)
                    run.folder.rename(folder / f"{mode}{number}")
                else:
                    shutil.rmtree(run.folder)
            print(mode, number + 1, "runs")
    return wrong


def _chosen(counts: Sequence[int], samples: int, seed: str) -> list[tuple[Fault, int]]:
    found = {
        fault: [(fault, nth) for nth in range(1, sum(counts[kind] for kind in fault.kinds) + 1)]
        for fault in FAULTS
    }
    if os.environ.get("PROBE_SOAK"):
        return [each for some in found.values() for each in some]
    draw = random.Random(seed + os.environ.get("SEED", ""))
    possible = [fault for fault in FAULTS if found[fault]]
    faults = draw.sample(possible, len(possible))  # each as often as the others, however many calls it is for
    return [draw.choice(found[faults[number % len(faults)]]) for number in range(samples)]


def unmarked(found: Any, true: Any, place: str) -> Iterator[str]:
    """Where a value is not as in the run that nothing failed in, and does not say so."""
    if isinstance(found, dict) and (found.get("lost") or found.get("unsupported") or found.get("incomplete")):
        return
    if isinstance(found, dict) and isinstance(true, dict) and found.keys() == true.keys():
        for key in found:
            yield from unmarked(found[key], true[key], f"{place}.{key}")
    elif isinstance(found, list) and isinstance(true, list) and len(found) == len(true):
        for number, both in enumerate(zip(found, true, strict=True)):
            yield from unmarked(*both, f"{place}.{number}")
    elif found != true:
        yield f"{place}: {str(found)[:100]} instead of {str(true)[:100]}"


def said(*words: str) -> tuple[int, str]:
    """The exit code of a command of ours, and all that it prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = probe(list(words))
    return code, out.getvalue()


def check_dump(whole: Ran, run: Ran, fault: Fault) -> Iterator[str]:
    """What is wrong with the dump that a run left."""
    if run.result is None and fault.code >= 0:
        yield f"the run died: {run.printed[-600:]}"
    if run.result not in (None, "refused", whole.result):
        yield "the run computed something else"
    if "Traceback" in run.printed or "please report" in run.printed.lower():
        yield f"printed {run.printed[-600:]}"
    dump = run.folder / "dump"
    steps = (
        {rank.step: rank for rank in probe_format.open(dump).ranks} if any(dump.glob("step*/rank/*")) else {}
    )
    partial = run.result == "refused" or len(steps) < 2
    for line in run.acknowledged:
        step, name = line.split()
        if int(step) not in steps:
            yield f"step {step} is gone, and {name} in it was acknowledged"
        elif name != "whole" and name not in steps[int(step)].records.names:
            yield f"{line} was acknowledged, and is gone"
    for step, rank in steps.items():
        before = run.printed
        (verdict,) = verify(rank.path)
        notes = " ".join((*verdict.problems, *verdict.notes))
        code, shown = said("show", str(rank.path))
        if "Traceback" in shown or (code and verdict.state != "empty"):
            yield f"show: {shown[-300:]}"
        if f"{step} whole" in run.acknowledged and verdict.state != "complete":
            yield f"step {step} was acknowledged, and is {verdict}"
        if verdict.state == "damaged":
            yield f"step {step} is damaged: {verdict.problems}"
        (true_rank,) = probe_format.open(whole.folder / "dump" / f"step{step}").ranks
        true = {record.name: record.json for record in true_rank.records}
        if verdict.state == "torn":
            partial = True
            if fault.code > 0 and not fault.lasting and fault.words not in notes:
                yield f"step {step} is torn, and verify does not say why: {notes}"
            code, text = said("recover", str(rank.path))
            if code:
                yield f"recover: {text}"
            (verdict,) = verify(rank.path)
            if verdict.state != "recovered":
                yield f"recovered, and {verdict}"
            if fault.words and fault.words in notes and fault.words not in " ".join(verdict.notes):
                yield f"step {step} was recovered, and verify no longer says why it ended: {verdict.notes}"
        if verdict.state == "empty":
            partial = True
            continue
        found = {record.name: record.json for record in probe_format.open(rank.path).ranks[0].records}
        if verdict.state == "complete" and found != true:
            partial = True
            if not verdict.notes:
                yield f"step {step} is called complete, and is not: {found.keys() ^ true.keys()}"
        for name in found:
            if name not in true:
                yield f"step {step} has {name}, which the whole run has not"
            elif name.endswith("parameters_grad") and verdict.state == "recovered":  # it has those that came
                yield from unmarked(
                    found[name], {key: true[name][key] for key in found[name]}, f"step {step} {name}"
                )
            else:
                yield from unmarked(found[name], true[name], f"step {step} {name}")
        assert before == run.printed
    if not steps and dump.exists() and "Traceback" in said("show", str(dump))[1]:
        yield "show, of a dump without a record"
    if partial and fault.harmless:
        yield "something is lost, though the call was only to be done again"
    if partial and fault.code > 0 and str(run.folder) not in run.printed:
        yield f"something is lost, and nobody says which file: {run.printed[-300:]}"


def check_command(whole: Ran, run: Ran, fault: Fault) -> Iterator[str]:
    """What is wrong with what a command left and said. A file below the folder is whole, or another name's."""
    if run.result is None and fault.code >= 0:
        yield f"it died: {run.printed[-600:]}"
    if "Traceback" in run.printed or "please report" in run.printed.lower():
        yield f"printed {run.printed[-600:]}"
    made, left = _made(whole.folder), _files(run.folder)
    if run.result == whole.result:
        if left != made:
            yield f"it went well, and left {sorted(map(str, {k for k in left | made if left.get(k) != made.get(k)}))}"
    elif run.result is not None and fault.harmless:
        yield "it failed, though the call was only to be done again"
    elif run.result is not None and (str(run.folder) not in run.printed or fault.words not in run.printed):
        yield f"it failed, and nobody says which file and why: {run.printed[-300:]}"
    for name, content in left.items():
        if content != made.get(name) and not any(part.startswith(".") for part in name.parts):
            yield f"{name} is not whole" if name in made else f"{name} was left behind"


def _files(folder: Path) -> dict[Path, bytes]:
    """What each file holds, without times; of TensorBoard's only that they are there."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file():
            raw = b"" if ".tfevents." in path.name else path.read_bytes()
            name = re.sub(r"\d{10}", "", str(path.relative_to(folder)))
            raw = raw[-20:] if path.suffix == ".html" else raw  # its data are packed, with the folder in them
            dated = len(raw) < 1 << 20  # a larger one is an array
            found[Path(name)] = re.sub(rb"\d{4}-\d\d-\d\d[T ][\d:.+]+", b"", raw) if dated else raw
    return found


_made = cache(_files)  # by the whole run, which is compared with each
