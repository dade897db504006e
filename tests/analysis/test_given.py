"""One of two ranks gives another thing to functions: a buffer, an argument, its mode, a constant. It is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from probe_analysis import ranks
from rank_dumps import run_ranks, tensor, write

HONEST = (
    *("honest=mix", "honest=L0", "honest=L1", "honest broadcast=mix", "honest same data=mix"),
    *("honest same data=L1", "frozen statistics=mix"),
)
ODD, SOME = "on rank 1 against rank 0", "on some replicas"
CONSTANT, EVAL = f"input_args.1 {ODD}", f"is in eval mode {SOME}"
NORM, DROPOUT = ("Functional.batch_norm.1", "bn.BatchNorm1d"), ("Functional.dropout.1", "drop.Dropout")
# run -> (step, function, module around it, reason, a part of the sentence)
FAULTS = {
    "running mean=mix": ("step0", *NORM, "buffer", f"another buffer {SOME}: input_args.1 (running_mean)"),
    "inv_freq=mix": ("step1", "Torch.outer.1", "Block", "constant", CONSTANT),
    "inv_freq=L1": ("step1", "Torch.outer.1", "", "constant", CONSTANT),
    "eval dropout=mix": ("step0", *DROPOUT, "argument", f"(training) {ODD}: False against True"),
    "eval dropout=L1": ("step0", "Functional.dropout.1", "", "argument", EVAL),
    "eval norm=mix": ("step0", *NORM, "argument", EVAL),
    "dropout=mix": ("step0", *DROPOUT, "argument", f"input_args.1 (p) {ODD}: 0.12 against 0.1"),
    "eps=mix": ("step0", "Functional.layer_norm.1", "norm.LayerNorm", "argument", "1e-06 against 1e-05"),
    "scale=mix": ("step1", "Tensor.__mul__.3", "Block", "argument", f"{ODD}: 0.26 against 0.25"),
    "constant=mix": ("step1", "Tensor.__sub__.1", "Block", "constant", CONSTANT),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("given")
    run_ranks("given_model.py", 2, str(folder), "statistics", *HONEST, *FAULTS)
    return folder


@pytest.mark.parametrize("run", HONEST)
def test_honest_replicas_agree(runs: Path, run: str) -> None:
    """Also where each keeps its own running statistics, or gets the same batch in both steps."""
    found = ranks(runs / run.replace(" ", "_"))
    assert found.first is None, found.sentence
    assert found.state == "agree"


@pytest.mark.parametrize("fault", FAULTS)
def test_the_first_sentence_names_place_and_rank(runs: Path, fault: str) -> None:
    found = ranks(runs / fault.replace(" ", "_"))
    step, function, module, reason, words = FAULTS[fault]
    record = f"{function}.forward"
    first = found.first
    assert first is not None
    assert (first.step, first.call.name, first.reason) == (step, record, reason), first.sentence
    assert (f", inside Module.module.blocks.1.{module}.forward.0" in first.sentence) == bool(module)
    assert "None" not in first.sentence
    assert words in first.sentence and ODD in first.sentence
    assert first.parting == ((0,), (1,))
    assert "given_model.py" in first.line or "site-packages" in first.line
    assert {each.call.name for each in found.disagreements} == {record}


def dump(folder: Path, *given: Any, steps: int = 2, third: bool = False, what: str = "Torch.add") -> Path:
    """A dump without modules: data that change, and a function whose second argument is given[rank]."""
    for step in range(steps):
        for rank in range(3 if third else 2):
            x = tensor(Max=1.5 + rank + step / 8, Norm=3.0 + rank + step / 8)
            own = given[min(rank, len(given) - 1)]
            second = own[step] if isinstance(own, list) else own
            data = {
                "Torch.relu.0.forward": {"input_args": [x], "output": [x | {"Min": 0.0}]},
                f"{what}.0.forward": {
                    "input_args": [x | {"Min": 0.0}, second],
                    "output": [x | {"Min": 0.5}],
                },
            }
            write(folder, rank, data, step)
    return folder


def number(value: Any, kind: str = "float") -> dict[str, Any]:
    return {"type": kind, "value": value}


def test_the_odd_one_of_three_is_named(tmp_path: Path) -> None:
    first = ranks(dump(tmp_path, number(0.5), number(0.25), number(0.5), third=True)).first
    assert first is not None and first.odd == (1,)
    assert "input_args.1 on rank 1 against ranks 0, 2: 0.25 against 0.5" in first.sentence


@pytest.mark.parametrize(
    "given",
    [
        ([number(0.5), number(0.25)], [number(0.75), number(0.125)]),  # follows from the data
        (number("cuda:0", "str"), number("cuda:1", "str")),
        (number("cuda:0", "torch.device"), number("cuda:1", "torch.device")),
        (
            tensor(shape=[], dtype="torch.int64", Max=0, Min=0),
            tensor(shape=[], dtype="torch.int64", Max=1, Min=1),
        ),
        (
            tensor(requires_grad=True),
            tensor(requires_grad=True, Norm=2.5),
        ),  # a weight, which `linear` would tell
        (tensor(Norm=2.0), tensor(Norm=2.0 * (1 + 1e-8))),  # rounded in another way
        (tensor(), tensor(shape=[5])),
    ],
)
def test_what_ranks_may_have_of_their_own_is_no_finding(tmp_path: Path, given: Any) -> None:
    assert ranks(dump(tmp_path, *given)).first is None


@pytest.mark.parametrize("kind", ["Torch.softmax", "Functional.softmax", "Tensor.__pow__"])
def test_a_whole_number_that_stays_is_compared(kind: str, tmp_path: Path) -> None:
    """A dimension, an exponent, a count."""
    odd, others = number(0, "int"), number(1, "int")
    assert ranks(dump(tmp_path / "one", others, odd, others, third=True, steps=1, what=kind)).first is None
    found = ranks(dump(tmp_path / "two", others, odd, others, third=True, what=kind))
    assert found.first is not None and (found.first.step, found.first.odd) == ("step1", (1,))
    assert "input_args.1" in found.first.sentence and ": 0 against 1" in found.first.sentence


ONE, TWO = number(1, "int"), number(2, "int")


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ((ONE, [ONE, TWO], ONE), "Torch.add"),  # follows from the data
        ((ONE, TWO, ONE), "Tensor.narrow"),  # its own part of what it got
        ((ONE, TWO, ONE), "Torch.arange"),  # the size of its data
        ((ONE, TWO, ONE), "Torch.div"),
    ],
)
def test_whole_numbers_that_ranks_may_have_of_their_own(given: Any, what: str, tmp_path: Path) -> None:
    dump(tmp_path, *given, third=True, what=what)
    for file in tmp_path.glob("step*/rank1/dump.json" if what == "Torch.div" else "step*/*/dump.json"):
        document = json.loads(file.read_text())
        if what == "Torch.div":  # its batch is smaller
            document["data"]["Torch.relu.0.forward"]["input_args"][0]["shape"] = [3]
        elif what == "Torch.arange":
            record = document["data"]["Torch.arange.0.forward"]
            record["input_args"] = record["input_args"][1:]
        file.write_text(json.dumps(document))
    assert ranks(tmp_path).first is None


def test_a_whole_number_of_each_rank_is_noted(tmp_path: Path) -> None:
    found = ranks(dump(tmp_path, number(0, "int"), ONE, TWO, third=True))
    assert found.first is None
    said = "step1: whole numbers that stay the same differ between replicas (1), first Torch.add.0.forward."
    assert any(note.startswith(f"{said}input_args.1.") for note in found.notes)


def test_what_needs_two_steps_is_not_said_of_one(tmp_path: Path) -> None:
    constant = tensor(), tensor(Norm=2.5)
    assert ranks(dump(tmp_path / "one", *constant, steps=1)).first is None
    first = ranks(dump(tmp_path / "two", *constant)).first
    assert first is not None and (first.step, first.reason) == ("step1", "constant")


def test_data_that_are_whole_numbers_tell_that_they_changed(tmp_path: Path) -> None:
    """But none of them is called a constant, as two of the same statistics may be two."""
    for step in range(2):
        for rank in range(2):
            ids = tensor(dtype="torch.int64", Max=30 + rank + step, Min=0, Mean=7.5)
            mask = tensor(dtype="torch.int64", Max=1, Min=0, Mean=0.5 + rank / 4)
            data = {
                "Functional.embedding.0.forward": {"input_args": [ids], "output": [tensor(Max=8.5 + rank)]},
                "Torch.sum.0.forward": {"input_args": [mask], "output": [tensor(Max=9.5 + rank)]},
                "Torch.outer.0.forward": {"input_args": [tensor(Norm=2.0 + rank)], "output": []},
            }
            write(tmp_path, rank, data, step)
    found = ranks(tmp_path)
    assert [(each.step, each.call.name) for each in found.disagreements] == [
        ("step1", "Torch.outer.0.forward")
    ]


def test_the_same_data_again_prove_nothing(tmp_path: Path) -> None:
    folder = dump(tmp_path, tensor(), tensor(Norm=2.5))
    for rank in (0, 1):
        one, two = (folder / f"step{step}" / f"rank{rank}" / "dump.json" for step in (0, 1))
        two.write_text(one.read_text())
    assert ranks(folder).first is None


@pytest.mark.parametrize(("ready", "finding"), [((True, True), False), ((True, False), True)])
def test_statistics_that_most_norms_have_of_their_own(
    tmp_path: Path, ready: tuple[bool, bool], finding: bool
) -> None:
    """Where each replica keeps its own they all differ; but one that has none yet was not loaded."""
    for rank, filled in enumerate(ready):
        mean = tensor(Norm=2.0 + rank) if filled else tensor(Max=0.0, Min=0.0, Mean=0.0, Norm=0.0)
        x, var = tensor(Max=3.0 + rank), tensor(Norm=4.0 + rank)
        data = {"Functional.batch_norm.0.forward": {"input_args": [x, mean, var], "output": [x]}}
        write(tmp_path, rank, data)
    assert (ranks(tmp_path).first is not None) == finding


def test_flags_of_two_forms_of_input_are_not_compared(tmp_path: Path) -> None:
    """A call that gets a mask on one rank alone may be told so by its data."""
    for rank in (0, 1):
        x = tensor(Max=3.0 + rank)
        causal = number(bool(rank), "bool")
        given = [x, x, *([tensor(dtype="torch.bool")] if rank else [])]
        data = {
            "Functional.attend.0.forward": {
                "input_args": given,
                "input_kwargs": {"causal": causal},
                "output": [x],
            }
        }
        write(tmp_path, rank, data)
    assert ranks(tmp_path).first is None


def test_a_shown_argument_is_in_the_table(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from probe_analysis.cli.ranks import main

    assert main([str(runs / "dropout=mix"), "--format", "json"]) == 1
    row = json.loads(capsys.readouterr().out)["rows"][0]
    assert (row["reason"], row["ranks"]) == ("argument", [[0], [1]])
