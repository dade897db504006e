"""Damage dumps in every way that a file can be wrong, the same in each run, and run all that reads them."""

from __future__ import annotations

import contextlib
import io
import json
import random
import shutil
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import probe_analysis
import probe_format
from plain_dump import is_tensor, put, records, tensor
from probe_format.cli.main import main
from probe_format.errors import ProbeError
from probe_format.read.verify import verify

_NUMBERS = (None, True, -1, 0, 3, 1 << 63, 10**400, -0.5, 1e308)
_TEXTS = ("", "text", "NaN", "-Infinity", "\ud800", "..", "\0")
_NESTED = ([], [None], ["a", "b"], [1, [2]], {}, {"type": "int"}, {"a": None}, {"value": {}}, [10**30] * 2)
WRONG: tuple[Any, ...] = (*_NUMBERS, *_TEXTS, *_NESTED)
GONE = object()
#: What a tensor says of itself only now and then.
RARE: dict[str, Any] = {
    "device_mesh": [0, 1],
    "placements": ["Shard(dim=0)"],
    "global_shape": [4, 8],
    "md5": "0123abcd",
    "nan_count": 1,
    "posinf_count": 0,
    "neginf_count": 2,
    "finite_max": 1.0,
    "finite_min": -1.0,
    "zero_count": 3,
    "data_name": "x.npy",
    "shared_with": ["output.0"],
    "stored": 3,
    "unsupported": "no",
    "lost": "why",
}
LAYOUT = {"Tensor Map": [[0], -1], "Device Matrix": [2], "hsdp_shard_size": 2}


def fresh(folder: Path, **header: Any) -> Path:
    """Write a small dump of two ranks, with what msprobe and Probe write only now and then; header: of dump.json."""
    for rank in range(2):
        draw = random.Random(f"mutants {rank}")
        found = records(draw, 1, rank)
        found["Distributed.all_reduce.0.forward"] = {
            "input_args": [tensor(draw, [2, 8])],
            "input_kwargs": {"group": {"type": "ProcessGroup", "group_ranks": [0, 1], "group_id": "0"}},
            "output": [tensor(draw, [2, 8], **RARE)],
            "parameters": {"weight": tensor(draw, [2, 8], type="mindspore.Tensor", layout=LAYOUT)},
        }
        put(folder / "step0" / f"rank{rank}", found, **header)
    return folder


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a document."""
    yield path
    for key, item in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield from places(item, (*path, key))


def changed(value: Any, path: tuple[Any, ...], wrong: Any) -> Any:
    """The document with another value at a place, or without it."""
    if not path:
        return None if wrong is GONE else wrong
    copy = dict(value) if isinstance(value, dict) else list(value)
    if len(path) > 1:
        copy[path[0]] = changed(copy[path[0]], path[1:], wrong)
    elif wrong is GONE:
        del copy[path[0]]
    else:
        copy[path[0]] = wrong
    return copy


def mutants(whole: Path, seed: int) -> Iterator[tuple[str, Callable[[Path], None]]]:
    """(what is wrong, the function that makes it so) without an end; whole: a dump."""
    draw = random.Random(seed)
    files = sorted(path.relative_to(whole) for path in whole.rglob("*.*") if path.is_file())
    files += [path for path in files if path.name in ("dump.json", "debug.json")] * 5
    while True:
        at = draw.choice(files)
        raw = (whole / at).read_bytes()
        if draw.random() < 0.15 or at.suffix != ".json":
            size = draw.randrange(max(len(raw), 1))
            kind = draw.choice(("cut", "empty", "gone", "flip", "folder"))
            yield f"{at} {kind} {size}", _file(at, kind, size)
            continue
        document = json.loads(raw)
        path = _place(draw, document)
        wrong = draw.choice((GONE, *WRONG))
        text = json.dumps(changed(document, path, wrong)).encode()
        yield f"{at} {path} = {'gone' if wrong is GONE else repr(wrong)[:40]}", _text(at, text)


def _place(draw: random.Random, document: Any) -> tuple[Any, ...]:
    """A place, near the tensors half of the time: there are far more of other places."""
    found = list(places(document))
    if draw.random() < 0.5:
        inside = [path for path in found if path and is_tensor(_at(document, path[:-1]))]
        found = inside or found
    return draw.choice(found)


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def _text(at: Path, text: bytes) -> Callable[[Path], None]:
    return lambda dump: (dump / at).write_bytes(text) and None


def _file(at: Path, kind: str, size: int) -> Callable[[Path], None]:
    def change(dump: Path) -> None:
        path = dump / at
        raw = path.read_bytes()
        path.unlink()
        if kind == "folder":
            path.mkdir()
        elif kind != "gone":
            flipped = raw[:size] + bytes(byte ^ 4 for byte in raw[size : size + 1]) + raw[size + 1 :]
            path.write_bytes({"cut": raw[:size], "empty": b"", "flip": flipped}[kind])

    return change


def uses(good: str, bad: str, out: Path) -> dict[str, Callable[[], Any]]:
    """All that reads dumps, by what a user writes: each command, and what of the library a command doesn't reach."""
    words = {
        "show": ("show", bad, "--full", "--stack"),
        "show --bad": ("show", bad, "--bad"),
        "verify": ("verify", bad),
        "recover": ("recover", bad),
        "nan": ("nan", bad),
        "ranks": ("ranks", bad),
        "trend": ("trend", bad, "activations"),
        "check": ("check", bad),
        "diff": ("diff", good, bad),
        "diff back": ("diff", bad, good, "--format", "json"),
        "diff noise": ("diff", good, good, "--noise", bad, "-o", str(out / "t.csv"), "--format", "csv"),
        "report": ("report", bad, "-o", str(out / "one.html")),
        "report both": ("report", good, bad, "-o", str(out / "two.html")),
        "export": ("export", bad, "-o", str(out / "parquet"), "--overwrite"),
        "export curves": ("export", bad, "-o", str(out / "curves"), "--to", "tensorboard", "--overwrite"),
    }
    return {name: lambda w=w: main(list(w)) for name, w in words.items()} | {
        "verify()": lambda: verify(bad),
        "open()": lambda: _walk(bad),
        "diff().rows": lambda: repr(probe_analysis.diff(bad, bad)),
        "trend(weights)": lambda: repr(probe_analysis.trend(bad, "weights")),
    }


def _walk(dump: str) -> None:
    for rank in probe_format.open(dump).ranks:
        for record in rank.records:
            with contextlib.suppress(ProbeError):
                _ = record.stack, record.parent
                for each in record.tensors:
                    _ = each.shape, each.dtype, each.type, each.max, each.norm, each.non_finite, repr(each)
                    with contextlib.suppress(ProbeError):
                        _ = each.file, each.load()


def faults(good: Path, work: Path, what: str, change: Callable[[Path], None]) -> Iterator[str]:
    """What goes wrong with one mutant, beyond errors of our own: in which use, and where in our code."""
    bad = work / "bad"
    shutil.rmtree(bad, ignore_errors=True)
    shutil.copytree(good, bad)
    change(bad)
    for name, use in uses(str(good), str(bad), work).items():
        out, err = io.StringIO(), io.StringIO()
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                use()
        except ProbeError:
            assert "(" in name, f"{name} let an error of ours through"
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            own = next(f for f in reversed(frames) if "/packages/" in f.filename)
            yield f"{name}: {type(error).__name__} in {Path(own.filename).name}:{own.lineno}: {what}"
        orders = [c for c in out.getvalue() + err.getvalue() if ord(c) < 32 and c not in "\n\r"]
        if orders:
            yield f"{name}: printed {orders[:3]}: {what}"
