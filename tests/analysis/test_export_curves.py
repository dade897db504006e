"""An export to TensorBoard, read by the real TensorBoard, against the dump's JSON."""

from __future__ import annotations

import math
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import plain_dump
import pytest
from probe_analysis import export
from probe_analysis.cli.export import main
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

CORPUS = Path(__file__).parents[1] / "format" / "corpus"
WORDS = {"NaN": math.nan, "inf": math.inf, " -inf": -math.inf}
KEYS = ("Max", "Min", "Mean", "Norm", "nan_count", "posinf_count", "neginf_count", "zero_count")


def float32(x: Any) -> float:
    """The number as TensorBoard holds it."""
    x = float(WORDS.get(x, x))
    try:
        return float(struct.unpack("f", struct.pack("f", x))[0])
    except OverflowError:
        return math.copysign(math.inf, x)


def curves(folder: Path) -> dict[tuple[str, int], float]:
    """(tag, step) -> number of one run, by TensorBoard."""
    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    found: dict[tuple[str, int], float] = {}
    for tag in accumulator.Tags()["scalars"]:
        for event in accumulator.Scalars(tag):
            assert (tag, event.step) not in found
            found[tag, event.step] = event.value
    return found


def expected(dump: Path, rank: int) -> dict[tuple[str, int], float]:
    found = {}
    for (step, number, record, slot), tensor in plain_dump.tensors_of(dump).items():
        for key in KEYS:
            if number == rank and tensor.get(key) is not None:
                found[f"{key}/{record}.{slot}", step] = float32(tensor[key])
    return found


def test_every_statistic_is_a_curve_over_the_steps(tmp_path: Path) -> None:
    dump = plain_dump.write(tmp_path / "dump", steps=11)  # 10 comes after 9
    found = export(dump, tmp_path / "out", form="tensorboard")
    assert (found.runs, found.errors, found.too_large) == (22, (), 0)
    for rank in (0, 1):
        assert curves(tmp_path / "out" / f"rank{rank}") == pytest.approx(
            expected(dump, rank), rel=0, nan_ok=True
        )
    tag = "Norm/Module.head.MLP.forward.0.parameters.weight"
    events = EventAccumulator(str(tmp_path / "out" / "rank0")).Reload().Scalars(tag)
    assert [event.step for event in events] == list(range(11))


@pytest.mark.parametrize(
    "dump",
    [
        "torch/v1.2.2_conv_mix_statistics/dump",
        "torch/v8.3.3_conv_L1_statistics_md5/dump",
        "torch/ddp_mix/dump",
        "mindspore/mix_statistics/dump",
        "probe/complete",
    ],
)
def test_dumps_of_every_kind(dump: str, tmp_path: Path) -> None:
    export(CORPUS / dump, tmp_path / "out", form="tensorboard")
    runs = sorted(path.parent for path in (tmp_path / "out").rglob("events.out.tfevents.*"))
    wanted: dict[tuple[str, int], float] = {}
    for _, path, document in plain_dump.ranks_of(CORPUS / dump):
        for record, value in document["data"].items():
            for keys, node in plain_dump.below(value):
                if plain_dump.is_tensor(node):
                    name = ".".join(map(str, (record, *keys)))
                    numbers = {key: node[key] for key in KEYS if node.get(key) is not None}
                    wanted |= {(f"{path.name}: {key}/{name}", 0): float32(n) for key, n in numbers.items()}
    found = {(f"{run.name}: {tag}", step): x for run in runs for (tag, step), x in curves(run).items()}
    assert found
    assert found == pytest.approx(wanted, rel=0, nan_ok=True)


def test_numbers_that_a_float32_does_not_hold_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    largest = struct.unpack("f", b"\xff\xff\x7f\x7f")[0]
    draw = plain_dump.random.Random(0)
    numbers = {"Max": 1e300, "Min": -1e39, "Mean": 2**70, "Norm": largest}
    tensor = plain_dump.tensor(draw, [2], "torch.float64") | numbers
    plain_dump.put(tmp_path / "dump" / "step3" / "rank", {"Torch.exp.0.forward": {"output": [tensor]}})
    assert main([str(tmp_path / "dump"), "-o", str(tmp_path / "out"), "--to", "tensorboard"]) == 0
    assert "2 numbers are larger than TensorBoard's float32 holds" in capsys.readouterr().out
    found = {tag.partition("/")[0]: x for (tag, _), x in curves(tmp_path / "out" / "rank").items()}
    assert found == {"Max": math.inf, "Min": -math.inf, "Mean": 2.0**70, "Norm": largest}


def test_a_filter_chooses_the_curves(tmp_path: Path) -> None:
    dump = plain_dump.write(tmp_path / "dump")
    export(dump, tmp_path / "out", form="tensorboard", rank=1, filter=".head.")
    assert [path.name for path in (tmp_path / "out").iterdir() if path.is_dir()] == ["rank1"]
    wanted = {key: x for key, x in expected(dump, 1).items() if ".head." in key[0]}
    assert curves(tmp_path / "out" / "rank1") == pytest.approx(wanted, rel=0, nan_ok=True)


def test_a_damaged_step_is_named_and_the_others_are_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dump = plain_dump.write(tmp_path / "dump", 3, 1)
    (dump / "step1" / "rank0" / "dump.json").write_text("{")
    assert main([str(dump), "-o", str(tmp_path / "out"), "--to", "tensorboard"]) == 1
    assert "could not read step1/rank0" in capsys.readouterr().err
    assert {step for _, step in curves(tmp_path / "out" / "rank0")} == {0, 2}


def test_what_is_loaded(tmp_path: Path) -> None:
    """Neither pyarrow nor tensorboard by an import, nor torch or TensorFlow by an export."""
    dump = plain_dump.write(tmp_path / "dump", 1, 1)
    code = f"""
import sys, probe_analysis.cli.export
print(*{{"pyarrow", "tensorboard"}} & set(sys.modules))
probe_analysis.export({str(dump)!r}, {str(tmp_path / "out")!r}, form="tensorboard")
print(*{{"torch", "tensorflow", "grpc"}} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "\n\n"
