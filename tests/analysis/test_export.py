"""An export against the dump, read by the standard library: every tensor and every value, and nothing else."""

from __future__ import annotations

import json
import math
import re
import signal
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import plain_dump
import probe_format
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from probe_analysis import export
from probe_analysis.cli.export import main
from probe_analysis.export.columns import SCHEMA_VERSION, TABLES, WATCHED, tensor_cells
from probe_analysis.export.rows import leaves
from probe_format.errors import FormatError, UsageError
from probe_format.read import verify
from probe_format.schema import is_tensor
from rank_dumps import changed

CORPUS = Path(__file__).parents[1] / "format" / "corpus"
FILES = sorted(file for name in ("dump.json", "debug.json") for file in CORPUS.rglob(name))


def is_json(file: Path) -> bool:
    try:
        return isinstance(json.loads(file.read_text()), dict)
    except ValueError:
        return False


STEPS = {is_json(file): [] for file in FILES}  # what msprobe wrote when it was killed is none
for _file in FILES:
    STEPS[is_json(_file)].append(str(_file.parent.relative_to(CORPUS)))

# Key of a tensor object -> its column. Written out here once more, so that a slip there shows.
COLUMNS = {
    "type": "type", "dtype": "original_dtype", "shape": "shape", "Max": "max", "Min": "min", "Mean": "mean",
    "Norm": "norm", "nan_count": "nan_count", "posinf_count": "posinf_count", "neginf_count": "neginf_count",
    "zero_count": "zero_count", "finite_max": "finite_max", "finite_min": "finite_min", "md5": "checksum",
    "requires_grad": "requires_grad", "data_name": "data_name", "data_crc32": "data_crc32",
    "device_mesh": "device_mesh",
    "placements": "placements", "global_shape": "global_shape", "layout": "layout", "shared_with": "shared_with",
    "unsupported": "unsupported", "lost": "lost",
}  # fmt: skip
WORDS = {"NaN": math.nan, "inf": math.inf, " -inf": -math.inf}

#: pyarrow cannot guess the type of a step that is NULL everywhere.
HIVE = ds.partitioning(pa.schema([("step", pa.int64()), ("rank", pa.int64())]), flavor="hive")


def table(folder: Path, name: str = "tensors") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ds.dataset(folder / name, partitioning=HIVE).to_table().to_pylist()
    key = ("call_order", "slot_order") if name in ("tensors", "arguments") else ()
    return sorted(rows, key=lambda row: (row["run"], *(row[k] for k in key)))


def same(a: Any, b: Any) -> bool:
    """Whether two values are the same number, or the same anything; NaN is NaN."""
    a, b = (WORDS.get(x, x) if isinstance(x, str) else x for x in (a, b))
    return bool(a == b or (a != a and b != b))


def tensor_again(row: dict[str, Any]) -> dict[str, Any]:
    """The tensor object that a row came from."""
    found = {key: row[column] for key, column in COLUMNS.items() if row.get(column) is not None}
    for key in ("device_mesh", "layout"):
        if key in found and found[key][:1] in "[{":
            found[key] = json.loads(found[key])
    return found | (json.loads(row["extra"]) if row.get("extra") else {})


def assert_same_tensor(row: dict[str, Any], truth: dict[str, Any]) -> None:
    again = tensor_again(row)
    assert again.keys() == {key for key, value in truth.items() if value is not None}
    wrong = {k: (again[k], truth[k]) for k in again if not same(again[k], truth[k])}
    assert not {k: v for k, v in wrong.items() if json.dumps(v[0]) != json.dumps(v[1])}


# ---------------- every dump that there is
@pytest.mark.parametrize("dump", sorted({*STEPS[True]}))
def test_every_tensor_and_every_value_is_in_the_tables(dump: str, tmp_path: Path) -> None:
    found = export(CORPUS / dump, tmp_path / "out")
    assert not found.errors
    tensors, arguments = table(tmp_path / "out"), table(tmp_path / "out", "arguments")
    records = {(row["run"], row["record"]): row for row in table(tmp_path / "out", "records")}
    by_place = {(r["run"], r["record"], r["slot"], r["slot_order"]): r for r in [*tensors, *arguments]}
    assert len(by_place) == len(tensors) + len(arguments) == found.tensors + found.arguments
    seen = 0
    for run in probe_format.open(CORPUS / dump).ranks:
        if run.source == "journal":  # the files are older than it: the reader's own assembly is the truth
            data = {record.name: record.json for record in run.records}
        else:
            paths = [run.path / name for name in ("dump.json", "debug.json")]
            data = {k: v for p in paths if p.is_file() for k, v in json.loads(p.read_text())["data"].items()}
        for name, record in data.items():
            own = records.pop((run.label, name))
            count = 0
            for keys, node in plain_dump.below(record):
                if len(keys) == 1 and own["kind"] in ("api", "module"):
                    continue  # `raised`, and parts that hold nothing
                row = by_place[run.label, name, ".".join(map(str, keys)), count]
                count += 1
                if plain_dump.is_tensor(node):
                    assert_same_tensor(row, node)
                else:
                    assert same(json.loads(row["json"]), node) or json.loads(row["json"]) == strict(node)
            assert own["tensors"] + own["arguments"] == count
            seen += count
    assert seen == len(by_place)
    assert not records


def strict(node: Any) -> Any:
    """A value with the words that strict JSON has for what is not finite."""
    if isinstance(node, float) and not math.isfinite(node):
        return "NaN" if node != node else "inf" if node > 0 else " -inf"
    if isinstance(node, list):
        return [strict(item) for item in node]
    return {key: strict(item) for key, item in node.items()} if isinstance(node, dict) else node


def test_the_columns_of_a_record_are_its_name_taken_apart(tmp_path: Path) -> None:
    export(plain_dump.write(tmp_path / "dump"), tmp_path / "out")
    rows = {row["record"]: row for row in table(tmp_path / "out") if (row["step"], row["rank"]) == (2, 1)}
    call = rows["Functional.layer_norm.1.forward"]
    named = ("kind", "prefix", "api", "call_number")
    assert [call[key] for key in named] == ["api", "Functional", "layer_norm", 1]
    assert (call["module"], call["class"]) == ("layers.1.mlp", None)
    assert call["parent"] == "Module.layers.1.mlp.MLP.forward.0"
    assert (call["source_file"], call["source_line"]) == ("/home/u/model.py", 2)
    assert call["line"] == "File /home/u/model.py, line 2, in forward, y = f(x2)"
    module = rows["Module.head.MLP.backward.0"]
    assert (module["kind"], module["class"], module["module"]) == ("module", "MLP", "head")
    assert (module["direction"], module["gradient"]) == ("backward", True)
    assert module["line"] == "File /home/u/model.py, line 5, in forward, y = f(x5)"
    places = {
        (r["record"], r["slot"]): r for r in table(tmp_path / "out") if (r["step"], r["rank"]) == (0, 0)
    }
    later = places["Module.head.MLP.backward.0", "later_passes.0.input.0"]
    assert (later["role"], later["path"], later["backward_pass"]) == ("input", "0", 1)
    grad = places["Module.head.MLP.parameters_grad", "weight.0"]
    assert (grad["role"], grad["path"], grad["backward_pass"]) == ("gradient", "weight", None)
    weight = places["Module.head.MLP.forward.0", "parameters.weight"]
    assert (weight["role"], weight["path"], weight["dtype"]) == ("parameter", "weight", "float32")
    assert (weight["shape"], weight["elements"], weight["finite"]) == ([8, 8], 64, True)


def test_the_file_of_a_tensor_is_where_its_row_says(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    export(CORPUS / "probe" / "complete", tmp_path / "out")
    rows = [row for row in table(tmp_path / "out") if row["file"]]
    assert rows
    for row in (row for row in rows if row["file"].endswith(".pt")):
        values = torch.load(row["file"], weights_only=True).double()
        assert (row["max"], row["min"]) == pytest.approx(
            (values.max().item(), values.min().item()), nan_ok=True
        )
        assert row["norm"] == pytest.approx(values.norm().item(), nan_ok=True)


NUMBER = st.floats() | st.integers() | st.booleans() | st.sampled_from(sorted(WORDS)) | st.none()
TENSOR = st.fixed_dictionaries(
    {
        "type": st.just("torch.Tensor"),
        "dtype": st.sampled_from(["torch.float32", "BFloat16"]),
        "shape": st.lists(st.integers(0, 2**66), max_size=4) | st.just([1.5]),
    },
    optional={
        **dict.fromkeys(("Max", "Min", "Mean", "Norm", "finite_max", "nan_count", "zero_count"), NUMBER),
        "md5": st.text(max_size=4) | st.integers(),
        "placements": st.lists(st.text(max_size=2) | st.none(), max_size=3),
        "shared_with": st.just(["output.1"]) | st.just("output.1"),
        "layout": st.just("torch.sparse_coo") | st.just({"Device Matrix": [2]}),
        "stored": st.integers(0, 9),
        "of a later version": st.just({"x": [1.0, None]}),
        "requires_grad": st.booleans() | st.just("yes"),
    },
)


@given(TENSOR)
def test_no_number_is_rounded_and_no_key_is_lost(truth: dict[str, Any]) -> None:
    assert_same_tensor(tensor_cells(truth), truth)


VALUE: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.just({"type": "int", "value": 5})
    | st.just({"type": "T", "dtype": "f", "shape": []}),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["input_args", "output", "later_passes"]), VALUE, max_size=3))
def test_the_walk_finds_what_recursion_finds(record: dict[str, Any]) -> None:
    found = list(leaves(record))
    truth = [pair for pair in plain_dump.below(record) if len(pair[0]) > 1 or pair[1] not in ([], {})]
    assert found == truth


def test_a_tensor_inside_of_another_value_is_found() -> None:
    inner = {"type": "torch.Tensor", "dtype": "torch.int8", "shape": [1]}
    op = {"type": "torch.distributed.P2POp", "class_type": "x", "op": "isend", "tensor": inner}
    found = [(keys, is_tensor(value)) for keys, value in leaves({"input_args": [[op]]})]
    assert found == [(("input_args", 0, 0), False), (("input_args", 0, 0, "tensor"), True)]


# ---------------- the schema
def test_the_specification_lists_the_columns() -> None:
    text = (files("probe_analysis") / "spec" / "export.md").read_text()
    assert f"version {SCHEMA_VERSION}" in text
    sections = re.split(r"^## ", text, flags=re.M)[1:]
    listed = {s.splitlines()[0]: re.findall(r"^\| `(\w+)` \| (\w+) \|", s, re.M) for s in sections}
    place = "Columns of tensors, arguments and records", "Columns of tensors and arguments"
    heads = {
        "tensors": (*place, "Columns of tensors"),
        "arguments": (*place, "Columns of arguments"),
        "records": (place[0], "Columns of records"),
        "runs": ("Columns of runs",),
        "watch": ("Columns of watch",),
    }
    for name, columns in {**TABLES, "watch": WATCHED}.items():
        assert [*columns.items()] == [row for head in heads[name] for row in listed[head]], name


def test_every_file_has_the_schema_and_its_version(tmp_path: Path) -> None:
    export(plain_dump.write(tmp_path / "dump", 2, 2), tmp_path / "out")
    for name, columns in TABLES.items():
        paths = sorted((tmp_path / "out" / name).rglob("*.parquet"))
        assert [str(p.relative_to(tmp_path / "out" / name)) for p in paths] == [
            f"step={s}/rank={r}/rank{r}.parquet" for s in (0, 1) for r in (0, 1)
        ]
        for path in paths:
            schema = pq.read_schema(path)
            assert schema.names == list(columns)
            assert schema.metadata[b"probe_export_version"] == SCHEMA_VERSION.encode()


def test_rows_are_written_group_by_group(tmp_path: Path) -> None:
    dump = plain_dump.write(tmp_path / "dump", 1, 1)
    export(dump, tmp_path / "out", group=10)
    file = pq.ParquetFile(next((tmp_path / "out" / "tensors").rglob("*.parquet")))
    sizes = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
    assert len(sizes) > 2
    assert max(sizes) < 10 + 4  # a record is not split
    assert sum(sizes) == len(plain_dump.tensors_of(dump))
    export(dump, tmp_path / "whole")
    assert [r["slot"] for r in table(tmp_path / "out")] == [r["slot"] for r in table(tmp_path / "whole")]


# ---------------- steps and ranks
def test_a_dump_without_steps_has_no_step(tmp_path: Path) -> None:
    rank = plain_dump.put(tmp_path / "loose" / "rank", plain_dump.records(plain_dump.random.Random(1), 0, 0))
    export(rank, tmp_path / "out")
    rows = table(tmp_path / "out")
    assert rows
    assert {(row["step"], row["rank"], row["run"]) for row in rows} == {(None, 0, "loose/rank")}
    (run,) = table(tmp_path / "out", "runs")
    assert run["distributed"] is False


def test_graph_and_pynative_of_one_step_are_two_runs(tmp_path: Path) -> None:
    data = plain_dump.records(plain_dump.random.Random(1), 0, 0)
    for mode in ("graph", "pynative"):
        plain_dump.put(tmp_path / "dump" / mode / "step0" / "rank", data, framework="mindspore")
    export(tmp_path / "dump", tmp_path / "out")
    runs = {(row["run"], row["mode"], row["step"], row["rank"]) for row in table(tmp_path / "out", "runs")}
    assert runs == {(f"{mode}/step0/rank", mode, 0, 0) for mode in ("graph", "pynative")}
    counts = [row["tensors"] for row in table(tmp_path / "out", "runs")]
    assert counts[0] == counts[1] == len(table(tmp_path / "out")) / 2
    export(tmp_path / "dump", tmp_path / "curves", form="tensorboard")
    folders = {path.parent.relative_to(tmp_path / "curves") for path in tmp_path.rglob("events.out.*")}
    assert folders == {Path("graph/rank"), Path("pynative/rank")}


def test_one_step_one_rank_and_a_filter(tmp_path: Path) -> None:
    dump = plain_dump.write(tmp_path / "dump")
    found = export(dump, tmp_path / "out", step=1, rank=0, filter=".head.")
    rows = table(tmp_path / "out")
    assert {(row["step"], row["rank"], row["module"]) for row in rows} == {(1, 0, "head")}
    assert found.left_out == 12 - found.records == 9
    with pytest.raises(FormatError, match="has no step 7; it has step0/rank0"):
        export(dump, tmp_path / "none", step=7)
    assert not (tmp_path / "none").exists()


def test_exports_of_several_machines_are_one_table(tmp_path: Path) -> None:
    dump = plain_dump.write(tmp_path / "dump")
    for rank in (0, 1):
        export(dump, tmp_path / "all" / f"part{rank}", rank=rank)
    export(dump, tmp_path / "whole")
    paths = sorted((tmp_path / "all").glob("*/tensors/**/*.parquet"))
    parts = ds.dataset(paths, partitioning="hive").to_table()
    assert parts.num_rows == len(table(tmp_path / "whole"))


# ---------------- what cannot be read
def test_what_is_damaged_is_named_and_the_rest_is_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dump = plain_dump.write(tmp_path / "dump", 2, 2)
    (dump / "step1" / "rank0" / "dump.json").write_text('{"task": "statistics", "data": {')
    (dump / "step0" / "rank1" / "stack.json").write_text("[]")
    assert main([str(dump), "-o", str(tmp_path / "out")]) == 1
    said = capsys.readouterr()
    assert "could not read step1/rank0: " in said.err
    assert "could not read step0/rank1: " in said.err
    assert "of 3 runs (a rank of a step each)" in said.out
    runs = {row["run"]: row for row in table(tmp_path / "out", "runs")}
    assert {label: bool(row["error"]) for label, row in runs.items()} == {
        "step0/rank0": False, "step0/rank1": True, "step1/rank0": True, "step1/rank1": False,
    }  # fmt: skip
    assert {row["run"] for row in table(tmp_path / "out")} == {"step0/rank0", "step0/rank1", "step1/rank1"}
    assert runs["step1/rank0"]["records"] == 0
    assert json.loads((tmp_path / "out" / "_probe_export.json").read_text())["runs"] == 3


@pytest.mark.parametrize("form", ["parquet", "tensorboard", "safetensors"])
def test_records_without_their_stacks_are_all_there(
    form: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = (plain_dump.write(tmp_path / name, 1, 1) for name in ("good", "bad"))
    (stack := bad / "step0" / "rank0" / "stack.json").write_text("[]")
    if form == "safetensors":
        for dump in (good, bad):
            with_one_file(dump / "step0" / "rank0")
    opened = probe_format.open(bad)
    one, two = export(good, tmp_path / "one", form=form), export(opened, tmp_path / "two", form=form)
    assert (one.runs, one.records, one.tensors) == (two.runs, two.records, two.tensors)
    assert [label for label, _ in two.errors] == ([] if form == "safetensors" else ["step0/rank0"])
    if form == "parquet":
        lines, none = ({row["line"] for row in table(tmp_path / name)} for name in ("one", "two"))
        assert len(lines) > 1 and none == {None}
        (about,) = table(tmp_path / "two", "runs")
        assert f"without their stacks: {stack} holds a JSON list" in about["error"]
    with pytest.raises(FormatError, match="holds a JSON list"):
        _ = opened.ranks[0].stack
    assert verify(bad)[0].state == "damaged"


def with_one_file(rank: Path) -> None:
    """Give one tensor of a rank a file."""
    with changed(rank) as data:
        x = next(iter(data.values()))["input_args"][0]
        x |= {"shape": [2], "data_name": "x.npy"}
    (rank / "dump_tensor_data").mkdir()
    np.save(rank / "dump_tensor_data" / "x.npy", np.ones(2, np.float32))


@pytest.mark.parametrize(("dump", "code"), [("torn", 0), ("debug_torn", 0), ("damaged_journal", 1)])
def test_a_killed_run_is_exported_as_far_as_its_journal_goes(
    dump: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(CORPUS / "probe" / dump), "-o", str(tmp_path / "out")]) == code
    said = capsys.readouterr()
    assert "Of a run that was killed, as far as its journal goes: step0/rank." in said.out
    assert ("its journal is damaged, so records may be missing" in said.err) == bool(code)
    (run,) = probe_format.open(CORPUS / "probe" / dump).ranks
    truth = {(record.name, t.slot): t.json for record in run.records for t in record.tensors}
    rows = {(row["record"], row["slot"]): row for row in table(tmp_path / "out")}
    assert rows.keys() == truth.keys()
    for place, row in rows.items():
        assert_same_tensor(row, dict(truth[place]))
    (about,) = table(tmp_path / "out", "runs")
    assert (about["source"], bool(about["error"])) == ("journal", bool(code))


def test_a_broken_line_costs_one_record(tmp_path: Path) -> None:
    rank = tmp_path / "step0" / "rank"
    plain_dump.put(rank, {})
    tensor = json.dumps(plain_dump.tensor(plain_dump.random.Random(0), [1]))
    lines = [f'"Torch.abs.{i}.forward": {{"input_args": [{tensor}]}}' for i in range(3)]
    lines[1] = lines[1].replace('"Max"', '"Max')
    head = '{"task":"statistics","level":"L1","framework":"pytorch","format_version":"1.0",\n"data": {\n'
    (rank / "dump.json").write_text(head + ",\n".join(lines) + "\n}}")
    found = export(tmp_path, tmp_path / "out")
    assert [what for what, _ in found.errors] == ["step0/rank Torch.abs.1.forward"]
    records = table(tmp_path / "out", "records")
    assert [bool(row["error"]) for row in records] == [False, True, False]
    assert found.tensors == 2


def test_nothing_readable_is_no_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for cut in STEPS[False]:
        assert main([str(CORPUS / cut), "-o", str(tmp_path / "out")]) == 2
        assert "is cut short" in capsys.readouterr().err
    rank = tmp_path / "dump" / "step0" / "rank"
    rank.mkdir(parents=True)
    (rank / "dump.json").write_text("")
    (rank / "stack.json").write_text("{}")
    capsys.readouterr()
    assert main([str(tmp_path / "dump"), "-o", str(tmp_path / "none")]) == 2
    assert "is empty: the run was killed" in capsys.readouterr().err
    assert main([str(tmp_path / "nothing"), "-o", str(tmp_path / "none")]) == 2
    assert "nothing does not exist" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_names_that_utf8_cannot_express(tmp_path: Path) -> None:
    plain_dump.put(
        tmp_path / "step0" / "rank",
        {"Torch.\ud800.0.forward": {"output": [{"type": "s", "value": "\udfff"}]}},
    )
    export(tmp_path, tmp_path / "out")
    (row,) = table(tmp_path / "out", "arguments")
    assert row["record"] == "Torch.\\ud800.0.forward"
    assert row["value"] == "\\udfff"


# ---------------- the folder
def test_what_is_there_is_not_replaced_unasked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump = plain_dump.write(tmp_path / "dump", 1, 1)
    out = tmp_path / "deep" / "out"
    assert main([str(dump), "-o", str(out)]) == 0
    assert main([str(dump), "-o", str(out)]) == 2
    assert "--overwrite" in capsys.readouterr().err
    first = (out / "_probe_export.json").stat().st_ino
    assert main([str(dump), "-o", str(out), "--overwrite"]) == 0
    assert (out / "_probe_export.json").stat().st_ino != first
    assert [path.name for path in out.parent.iterdir()] == ["out"]
    for words in ([], ["--overwrite"]):  # never what is not an export
        assert main([str(dump), "-o", str(dump), *words]) == 2
        assert "is no export" in capsys.readouterr().err
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="is no export"):
        export(dump, tmp_path / "file", overwrite=True)
    (tmp_path / "empty").mkdir()
    export(dump, tmp_path / "empty")
    assert (dump / "step0" / "rank0" / "dump.json").is_file()


KILLED = """
import os, signal, sys
from probe_analysis import export

def progress(label, done, total):
    if label == "step1/rank1":
        os.kill(os.getpid(), signal.SIGKILL)

export(sys.argv[1], sys.argv[2], group=5, overwrite=True, progress=progress)
"""


@pytest.mark.parametrize("earlier", [False, True])
def test_a_killed_export_leaves_what_was_there(
    earlier: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dump = plain_dump.write(tmp_path / "dump", 2, 2)
    out = tmp_path / "out"
    before = export(dump, out, step=0).tensors if earlier else 0
    done = subprocess.run([sys.executable, "-c", KILLED, str(dump), str(out)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert out.exists() == earlier
    if earlier:
        assert len(table(out)) == before
    assert main([str(dump), "-o", str(out), "--overwrite"]) == 0
    said = capsys.readouterr().err
    assert len(list(tmp_path.glob(".out.*.tmp"))) == 1
    assert "is of an export that was killed" in said
    assert len(table(out)) == len(plain_dump.tensors_of(dump))


def test_an_export_that_fails_cleans_up(tmp_path: Path) -> None:
    dump = plain_dump.write(tmp_path / "dump", 1, 1)

    def progress(label: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(dump, tmp_path / "out", progress=progress)
    assert [path.name for path in tmp_path.iterdir()] == ["dump"]


def test_a_file_that_cannot_be_closed_is_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """pyarrow's OSError has a text alone, and no number (soak)."""

    real = pq.ParquetWriter.close

    def close(writer: Any) -> None:
        real(writer)
        raise OSError("error closing file")

    dump = plain_dump.write(tmp_path / "dump", steps=1, ranks=1)
    monkeypatch.setattr(pq.ParquetWriter, "close", close)
    assert main([str(dump), "-o", str(tmp_path / "out")]) == 2
    assert f"probe export: [Errno 5] error closing file: '{tmp_path / 'out'}'" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["dump"]


@pytest.mark.parametrize(
    ("form", "missing"), [("parquet", "pyarrow"), ("tensorboard", "tensorboard.compat.proto.event_pb2")]
)
def test_a_missing_package_is_named_with_its_extra(
    form: str,
    missing: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    dump = plain_dump.write(tmp_path / "dump", 1, 1)
    monkeypatch.setitem(sys.modules, missing, None)
    assert main([str(dump), "-o", str(tmp_path / "out"), "--to", form]) == 2
    extra = {"parquet": "export", "tensorboard": "tensorboard"}[form]
    assert f"pip install 'probe-analysis[{extra}]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_wrong_arguments_are_told() -> None:
    with pytest.raises(UsageError, match="parquet or tensorboard or safetensors"):
        export("x", "y", form="csv")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="at least one row"):
        export("x", "y", group=0)
    with pytest.raises(SystemExit):
        main(["x", "-o", "y", "--to", "csv"])
