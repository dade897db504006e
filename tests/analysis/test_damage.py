"""Every command and the API on dumps that are damaged in one place: only errors of our own, whatever is wrong."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import nullcontext
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import mutants
import numpy as np
import probe_analysis
import probe_format
import pyarrow.parquet as parquet
import pytest
import rank_dumps
from probe_format.cli.main import main
from probe_format.errors import DamagedError, FormatError
from probe_format.schema import parse_report
from report_dumps import read

CORPUS = Path(__file__).parents[1] / "format" / "corpus" / "probe"
STRICT = {"format_version": "1.0", "tool": "probe"}


@pytest.mark.slow
@pytest.mark.parametrize("of", ["msprobe", "probe"])
def test_a_damaged_dump_ends_no_command_with_a_traceback(tmp_path: Path, of: str) -> None:
    """What journals and tensor files are like inside is changed in tests/soak/test_mutants.py."""
    good = mutants.fresh(tmp_path / "good", **(STRICT if of == "probe" else {}))
    wrong = islice(mutants.mutants(good, seed=19), 20)
    found = [fault for what, change in wrong for fault in mutants.faults(good, tmp_path, what, change)]
    assert found == []


def changed(folder: Path, name: str, *place: object, to: object, ranks: tuple[int, ...] = (1,)) -> str:
    """A dump with one value changed in some ranks."""
    mutants.fresh(folder)
    for rank in ranks:
        path = folder / "step0" / f"rank{rank}" / name
        path.write_text(json.dumps(mutants.changed(json.loads(path.read_text()), place, to)))
    return str(folder)


RECORD = "Module.layers.0.mlp.MLP.forward.0"
LARGE = [2**62, 2**62]


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        *(
            ("shape", shape)
            for shape in ([None], ["2"], [[2]], [-1], [10**400], LARGE, [1] * 65, "2", None, 2, {})
        ),
        *(("dtype", wrong) for wrong in (None, 5, ["float32"])),
        *((key, wrong) for key in ("Max", "Norm", "md5", "nan_count") for wrong in ([1], {"a": 1})),
        *((key, "text") for key in ("Max", "Mean", "finite_min")),
    ],
)
def test_what_a_tensor_says_of_itself_is_checked_where_it_is_read(
    tmp_path: Path, key: str, wrong: object, capsys: pytest.CaptureFixture[str]
) -> None:
    good = str(mutants.fresh(tmp_path / "good"))
    damaged = changed(tmp_path / "damaged", "dump.json", "data", RECORD, "input_args", 0, key, to=wrong)
    said = rf"dump\.json: {RECORD}\.input_args\.0\.{key}(\.0)?: "
    for use in (lambda: probe_analysis.ranks(damaged), lambda: open_everything(damaged)):
        with pytest.raises(DamagedError, match=said):
            use()
    (why,) = probe_analysis.diff(good, damaged).skipped.values()
    assert re.search(said, why)
    assert main(["verify", damaged]) == 4
    assert re.search(said.removeprefix(r"dump\.json: "), capsys.readouterr().out)
    texts = read(probe_analysis.report(damaged).html)[0]["texts"]
    assert any(text.startswith("cannot be read: ") for text in texts)


@pytest.mark.parametrize("which", ["first", "second"])
@pytest.mark.parametrize("norm", [1.0, 1e9])
def test_a_damaged_record_that_one_run_has_alone_is_named_and_the_rest_compared(
    tmp_path: Path, which: str, norm: float
) -> None:
    lone = "Functional.relu.77.forward"
    ranks = {"ranks": (0, 1)}
    good = changed(tmp_path / "a", "dump.json", "data", RECORD, "output", 0, "Norm", to=norm, **ranks)
    bad = changed(tmp_path / "b", "dump.json", "data", RECORD, "output", 0, "Norm", to=1.0, **ranks)
    for rank in (Path(bad) / "step0").glob("rank*"):
        with rank_dumps.changed(rank) as data:
            data[lone] = {"input_args": [{**data[RECORD]["output"][0], "shape": "2"}]}
    found = probe_analysis.diff(*((bad, good) if which == "first" else (good, bad)))
    assert not found.skipped and len(found.runs) == 2
    assert found.verdict.state == ("same" if norm == 1.0 else "different"), found.sentence
    said = [note for note in found.notes if f"of the {which} run alone, and not read: " in note]
    assert len(said) == 2 and all(f"{lone}.input_args.0.shape" in note for note in said)


def open_everything(dump: str) -> None:
    for rank in probe_format.open(dump).ranks:
        for record in rank.records:
            assert record.tensors


def test_an_empty_file_beside_the_records_says_nothing_of_them(tmp_path: Path) -> None:
    (file := mutants.fresh(tmp_path) / "step0" / "rank0" / "construct.json").write_text("")
    with pytest.raises(FormatError, match=r"is empty: .* before anything was in it") as said:
        _ = probe_format.open(file.parent).ranks[0].construct
    assert "record" not in str(said.value)


@pytest.mark.parametrize("version", ["9.7", "0.3", "1.9"])
def test_files_of_another_major_version_are_refused(tmp_path: Path, version: str) -> None:
    """By each command, of one rank as of a damaged one; of 1.9 all is read that this version knows."""
    dump = mutants.fresh(tmp_path / "dump", **STRICT)
    probe_analysis.export(dump, tmp_path / "tables")
    file = dump / "step0" / "rank1" / "dump.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format_version": version}))
    for table in (tmp_path / "tables").glob("*/step=0/rank=1/rank1.parquet"):
        rows = parquet.read_table(table)
        about = rows.schema.metadata | {b"probe_export_version": version.encode()}
        parquet.write_table(rows.replace_schema_metadata(about), table)
    for place in (dump, tmp_path / "tables"):
        for found in (probe_analysis.first_non_finite(place), probe_analysis.trend(place)):
            assert [*found.skipped] == ([] if version == "1.9" else ["step0/rank1"])
            for why in found.skipped.values():
                assert (
                    f"is of version {version} of its format, and this Probe reads 1.x. Update Probe." in why
                )
        with nullcontext() if version == "1.9" else pytest.raises(FormatError, match="Update Probe"):
            probe_analysis.ranks(place)
    with pytest.raises(FormatError, match=r"is of version 2\.0") as said:
        parse_report(b'{"format_version": "2.0"}', "report.json")
    assert str(said.value).startswith("report.json ")


@pytest.mark.parametrize(("state", "rank"), [("same", ()), ("different", (0,)), ("different", (1,))])
def test_a_page_of_two_dumps_says_which_stack_cannot_be_read(
    tmp_path: Path, state: str, rank: tuple[int, ...]
) -> None:
    good = mutants.fresh(tmp_path / "good")
    bad = Path(
        changed(tmp_path / "bad", "dump.json", "data", RECORD, "output", 0, "Norm", to=1e9, ranks=rank)
    )
    stack = bad / "step0" / "rank1" / "stack.json"
    stack.write_bytes(stack.read_bytes()[:-100])
    found = probe_analysis.report(good, bad)
    assert f"{stack} is cut short" in found.unread[f"step0/rank1 of {bad}"]
    assert read(found.html)[0]["findings"][0]["state"] == state


@pytest.mark.parametrize("key", ["input_args", "input_kwargs", "output", "parameters"])
@pytest.mark.parametrize("wrong", [3, "text", None, True, [3], {"a": "b"}])
def test_no_command_minds_what_stands_where_arguments_belong(tmp_path: Path, key: str, wrong: object) -> None:
    good = str(mutants.fresh(tmp_path / "good"))
    damaged = changed(tmp_path / "damaged", "dump.json", "data", RECORD, key, to=wrong, ranks=(0, 1))
    for use in mutants.uses(good, damaged, tmp_path).values():
        use()


#: Read dumps with a file larger than memory, each in a fork that may have 256 MiB more than this process has by then.
TOO_LARGE = """
import contextlib, os, resource, sys
sys.path.insert(0, sys.argv[1])
import mutants
import pyarrow, numpy, tensorboard
with contextlib.suppress(ImportError):
    import torch
import probe_analysis.cli.report, probe_analysis.cli.diff, probe_analysis.cli.ranks, probe_analysis.cli.export
import probe_format.read.verify
from pathlib import Path
from probe_format import ProbeError

def read(good, bad):
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20),) * 2)
    for name, use in mutants.uses(str(good), str(bad), bad.parent).items():
        print("##", name, flush=True)
        try:
            print("##", name, "returned", use())
        except ProbeError as error:
            print(error)
    try:
        for tensor in (x for rank in probe_format.open(bad).ranks for record in rank.records for x in record.tensors):
            tensor.load()
    except ProbeError as error:
        print(error)

for place in map(Path, sys.argv[2:]):
    if not (child := os.fork()):
        for number in (1, 2):
            os.dup2(os.open(place / "said", os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
        read(place / "good", place / "bad")
        sys.stdout.flush()
        os._exit(0)
    assert not os.waitpid(child, 0)[1], (place / "said").read_text()
"""
LARGER = ["dump.json", "stack.json", "construct.json", "report.json", "records.journal"]
LARGER += [".npy"] if find_spec("torch") else []  # the dump has files of it, too


def grown(place: Path, name: str) -> Path:
    """A dump, and another of which one file is a sparse one of 1 TB."""
    for each in ("good", "bad"):
        shutil.copytree(CORPUS / ("torn" if name == "records.journal" else "complete"), place / each)
    file = next(path for path in sorted((place / "bad").rglob("*")) if path.name.endswith(name))
    if name == ".npy":
        with file.open("wb") as opened:
            np.lib.format.write_array_header_1_0(
                opened, {"descr": "<f4", "fortran_order": False, "shape": (1 << 38,)}
            )
        os.truncate(file, file.stat().st_size + (1 << 40))
    else:
        os.truncate(file, 1 << 40)
    return file


@pytest.fixture(scope="module")
def larger(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, str]]:
    """Name of a file -> the file that is larger than memory, and what is said of it."""
    places = {name: tmp_path_factory.mktemp("larger") for name in LARGER}
    files = {name: grown(place, name) for name, place in places.items()}
    words = [sys.executable, "-c", TOO_LARGE, Path(__file__).parent, *places.values()]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stderr
    return {name: (files[name], (place / "said").read_text()) for name, place in places.items()}


@pytest.mark.parametrize("name", LARGER)
def test_a_file_larger_than_memory_is_named(larger: dict[str, tuple[Path, str]], name: str) -> None:
    file, said = larger[name]
    assert "Traceback" not in said
    assert f"{file} is too large for the memory that is free here." in said
    assert "## verify returned 4\n" not in said  # whether it is damaged is not known
    if name == "records.journal":
        assert f"probe recover: {file} is too large" in said
