"""Compare a network in PyTorch with the same one in MindSpore, of equal weights, which no environment holds both of.

The dumps in twins/mindspore_* are what twins/mindspore_twin.py wrote with MindSpore 2.10 and Probe (dump.json and
construct.json of them); tests/mindspore/test_twin.py runs it again and compares.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
import probe_analysis
from rank_dumps import run

TWINS = Path(__file__).with_name("twins")


def dumped(folder: Path, level: str, fault: str = "") -> Path:
    run("twins/torch_twin.py", str(folder), level, fault)
    return folder


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_twins_are_the_same_within_tolerance(tmp_path: Path, level: str) -> None:
    found = probe_analysis.diff(dumped(tmp_path, level), TWINS / f"mindspore_{level}")
    assert found.verdict.state == "within tolerance", found.verdict.sentence
    modules = [call for call in found.runs[0].calls if call.pair.a.kind in ("module", "parameters_grad")]
    # 2 layers of 5 and the head and the net; forward and backward; parameters' gradients of 7 modules
    assert (
        len(modules) == 12 + 12 + 7 - 2
    )  # nothing of the list of layers, and what runs before it, passes on
    assert not any(call.cause for call in found.runs[0].calls)


@pytest.mark.parametrize("level", ["L0", "mix"])
@pytest.mark.parametrize(
    ("fault", "record", "words"),
    [
        ("eps", "Module.layers.1.norm.LayerNorm.forward.0", "its output does not"),
        ("weight", "Module.layers.1.up.Linear.forward.0", "other parameters: layers.1.up.weight"),
    ],
)
def test_a_fault_in_one_twin_is_found(
    tmp_path: Path, level: str, fault: str, record: str, words: str
) -> None:
    verdict = probe_analysis.diff(dumped(tmp_path, level, fault), TWINS / f"mindspore_{level}").verdict
    assert verdict.state == "different"
    assert verdict.call is not None
    assert verdict.call.name == record, verdict.sentence
    assert words in verdict.sentence
    assert "torch_twin.py" in verdict.line
