"""Plant one fault in a model, dump it beside the right one, and see whether the first finding names the fault.

One rank whose reduction is missing, the fault that takes several processes, is in test_ranks.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
import probe_analysis
from rank_dumps import run

# fault -> (the beginning of the record named first, a part of the sentence)
MIX = {
    "eps": ("Tensor.__add__.12.forward", "1e-05 against 1e-06"),
    "transposed weight": ("Functional.linear.15.forward", "its output does not"),
    "bf16": ("Module.blocks.2.up.Linear.forward.0", "called in the first run alone"),
    "mask off by one": ("Tensor.tril.2.forward", "other arguments: input_args.1 0 against 1"),
    "stale buffer": ("Tensor.__add__.24.forward", "input_args.1"),
    "residual": ("Tensor.__add__.17.forward", "called in the first run alone"),
    "loss scale": ("Tensor.__mul__", "1024.0 against 512.0"),
    "rope base": (
        "Module.blocks.2.attention.Attention.forward.0",
        "other buffers: blocks.2.attention.frequency",
    ),
    "kwargs": ("Functional.gelu.2.forward", "input_kwargs.approximate 'none' against 'tanh'"),
    "swapped kwargs": ("Torch.clamp.2.forward", "input_kwargs.min -3.0 against 3.0, and 1 more"),
    "dropout seed": ("Functional.dropout.2.forward", "its output does not"),
    "beta": ("Tensor.mul_", "0.999 against 0.95"),
    "detached": ("Tensor.__add__.17.backward", "output.1 is in the first alone"),
    "quantised": ("Module.blocks.2.up.Linear.forward.0", "called in the first run alone"),
}
L0 = {
    "eps": ("Module.blocks.2.norm.RMSNorm.forward.0", "its output does not"),
    "transposed weight": ("Module.blocks.2.attention.o.Linear.forward.0", "its output does not"),
    "mask off by one": (
        "Module.blocks.2.attention.Attention.forward.0",
        "what its own code gives to Module.blocks.2.attention.o.Linear.forward.0 does not",
    ),
    "residual": ("Module.blocks.2.Block.forward.0", "its output does not"),
    "dropout seed": ("Module.blocks.2.dropout.Dropout.forward.0", "its output does not"),
    "detached": ("Module.blocks.2.dropout.Dropout.", "No gradient comes to"),
    "beta": ("Module.embedding.Embedding.forward.0", ""),
}
NAN = {
    "log of zero": ("Torch.log.0.forward", "-Inf"),
    "fp16 overflow": ("Tensor.__mul__", "torch.float16"),
}


#: Level, number of steps, fault, and what is named first. At L1 the calls are aligned in their order, without modules.
PLANTED = [
    *(("mix", 2, fault, *named) for fault, named in MIX.items()),
    *(("L0", 4, fault, *named) for fault, named in L0.items()),
    *(("L1", 1, fault, MIX[fault][0], "") for fault in ("kwargs", "residual")),
]


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planted")
    runs = ["=mix,2", "again=mix,2", "=L0,4", "=L1,1"]
    runs += [f"{fault}={level},{steps}" for level, steps, fault, *_ in PLANTED]
    runs += [f"{fault}=mix,2" for fault in NAN]
    runs += ["wide=mix,2", "wide eps=mix,2", "wide=mix,2,2"]  # the last with two threads
    run("planted_model.py", str(folder), *runs)
    return folder


def dumped(dumps: Path, fault: str, level: str = "mix", steps: int = 2) -> Path:
    return dumps / f"{fault.replace(' ', '_')}={level}_{steps}"


@pytest.mark.parametrize(("level", "steps", "fault", "record", "words"), PLANTED)
def test_the_first_finding_names_the_fault(
    dumps: Path, level: str, steps: int, fault: str, record: str, words: str
) -> None:
    verdict = probe_analysis.diff(*(dumped(dumps, each, level, steps) for each in ("", fault))).verdict
    assert verdict.state == "different"
    assert verdict.call is not None
    assert verdict.call.name.startswith(record), verdict.sentence
    assert words in verdict.sentence
    assert "planted_model.py" in verdict.line or level != "mix"


@pytest.mark.parametrize("fault", NAN)
def test_the_call_that_makes_a_value_not_finite_is_found(dumps: Path, fault: str) -> None:
    found = probe_analysis.first_non_finite(dumped(dumps, fault))
    record, words = NAN[fault]
    assert found.first is not None
    assert found.first.call.name.startswith(record), found.first.sentence
    assert words in found.first.sentence
    assert found.first.before
    assert "planted_model.py" in found.first.line


def test_infinities_of_a_mask_are_meant(dumps: Path) -> None:
    found = probe_analysis.first_non_finite(dumped(dumps, ""))
    assert found.first is None
    assert sum(found.counts.values()) > 0


def test_two_honest_runs_are_the_same(dumps: Path) -> None:
    found = probe_analysis.diff(dumped(dumps, ""), dumped(dumps, "again"))
    assert found.verdict.state == "same"


def test_other_threads_are_the_same_within_noise(dumps: Path) -> None:
    one, two = dumped(dumps, "wide"), dumps / "wide=mix_2_2"
    verdict = probe_analysis.diff(one, two).verdict
    assert verdict.state == "within tolerance", verdict.sentence  # the numbers do differ
    assert probe_analysis.diff(one, two, noise=two).verdict.state != "different"


@pytest.mark.parametrize("measured", [False, True])
def test_a_fault_shows_through_the_noise_of_threads(dumps: Path, measured: bool) -> None:
    one, two = dumped(dumps, "wide"), dumps / "wide=mix_2_2"
    fault = dumped(dumps, "wide eps")
    verdict = probe_analysis.diff(two, fault, noise=one if measured else None).verdict
    assert verdict.state == "different"
    assert verdict.call is not None
    assert verdict.call.name.startswith(MIX["eps"][0]), verdict.sentence


def test_what_the_run_does_by_itself_is_noise(dumps: Path) -> None:
    same = dumped(dumps, "")
    other = dumped(dumps, "dropout seed")
    assert probe_analysis.diff(same, other, noise=other).verdict.state != "different"
    assert probe_analysis.diff(same, other, noise=dumped(dumps, "again")).verdict.state == "different"
