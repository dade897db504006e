"""Twenty pairs of bench.cause by a fixed seed: whose cause is named, and which honest pairs are called different."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from bench.cause.grade import graded
from bench.cause.pairs import Pair, drawn, dump

pytestmark = pytest.mark.slow
FAULTY, HONEST = 12, 8


def test_the_cause_is_named_in_most_pairs_and_honest_ones_are_not_called_different(tmp_path: Path) -> None:
    """Kernels and with them a few numbers depend on the machine, so that the bounds leave room for two pairs."""
    said = []
    for n, pair in enumerate(drawn(FAULTY, HONEST, seed=3)):
        a, b, truth = dump(pair, tmp_path / str(n))
        grade, sentence = graded(a, b, truth)
        said.append(f"{grade}: {pair}: {sentence}")
        if truth is not None and not n:
            assert graded(a, a, truth)[0] == "silent"  # so the grades can tell
    words = "\n".join(said)
    assert sum(each.startswith(("named:", "around it:")) for each in said) >= FAULTY - 2, words
    assert sum(each.startswith("alarm:") for each in said) <= 1, words
    assert len(said) == FAULTY + HONEST


@pytest.mark.parametrize(
    "pair",
    [
        Pair("convnext", "fp32/autocast", 309, "L0", sketch=True),  # a stage gets what autocast has converted
        Pair(
            "bart", "attention fp32", 309, "L0", sketch=True
        ),  # eager attention returns its weights, and takes a mask
        Pair("bart", "attention bf16", 309, "L0"),
        Pair("resnet", "tf32 sums fp32", 257, "L0", sketch=True),
    ],
    ids=str,
)
def test_honest_pairs_of_the_first_final_figure_are_quiet(pair: Pair, tmp_path: Path) -> None:
    grade, sentence = graded(*dump(pair, tmp_path))
    assert grade == "quiet", sentence


def test_a_mask_that_one_run_alone_takes_is_named_where_its_results_differ(tmp_path: Path) -> None:
    pair = Pair("bart", "attention fp32", 309, "L0", "mask", "mask", sketch=True)
    grade, sentence = graded(*dump(pair, tmp_path))
    assert grade in ("named", "around it"), sentence
