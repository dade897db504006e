"""Dump real runs on several processes, with one rank at fault, and see whether that rank and place are named."""

from __future__ import annotations

import csv
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from probe_analysis import ranks
from probe_analysis.cli.ranks import main
from probe_format.errors import FormatError, UsageError
from rank_dumps import changed, run_ranks, tensor, write

HONEST = ("honest=mix", "honest=L0", "honest=L1", "sgd=mix", "reduced by hand=mix")
# run -> (step, beginning of the record named first, slot, reason, a part of the sentence)
AGREED, MISSING = "In step0 they agreed", "no counterpart on rank 1"
OWN = "On rank 1 it is what its own backward pass left in Module.module.embedding.Embedding.parameters_grad"
UP = ("step1", "Module.module.up.Linear.", "parameters.weight", "weight", AGREED)
FAULTS = {
    "reduce missing=mix": ("step0", "Torch._foreach_norm.0.forward", "input_args.0.0", "update", OWN),
    "reduce missing=L0": ("step1", "Module.module.embedding.", "parameters.weight", "weight", AGREED),
    "reduce missing=L1": ("step1", "Functional.embedding.0", "input_args.1", "weight", AGREED),
    "a copy is reduced=mix": (
        *("step1", "Torch._foreach_norm.0.forward", "input_args.0.3", "update"),
        "belongs to Module.down.Linear.parameters_grad.weight.0",
    ),
    "a copy is reduced=L1": (
        *("step2", "Functional.linear.1.forward", "input_args.1", "weight"),
        "In step1 they agreed",
    ),
    "touched weight=mix": UP,
    "touched weight=L0": UP,
    "skipped module=mix": ("step0", "Module.module.extra.Linear.forward", "", "call", MISSING),
    "a reduce is left out=mix": ("step1", "Distributed.all_reduce.3", "", "call", MISSING),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("replicas")
    last = "a reduce is left out=mix"  # after it the processes cannot talk to each other any more
    words = [*HONEST, "other weights=mix", *(fault for fault in FAULTS if fault != last)]
    for part in (words, [last]):
        run_ranks("replicas_model.py", 3, str(folder), *part)
    return folder


@pytest.mark.parametrize("run", HONEST)
def test_honest_ranks_agree(runs: Path, run: str) -> None:
    found = ranks(runs / run.replace(" ", "_"))
    assert found.first is None, found.first
    assert found.state == "agree"
    assert found.numbers == (0, 1, 2)
    assert found.checked["weight"] == 3 * 11  # steps, parameters
    if run.startswith("reduced"):
        assert found.checked["collective"] == 3 * 11
    if run.endswith("mix"):
        assert found.checked["update"] > 100
        assert any("Torch.log.0.forward by rank 0" in note for note in found.notes)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_first_finding_names_place_and_rank(runs: Path, fault: str) -> None:
    first = ranks(runs / fault.replace(" ", "_")).first
    step, record, slot, reason, words = FAULTS[fault]
    assert first is not None
    assert (first.step, first.slot, first.reason) == (step, slot, reason), first.sentence
    assert first.call.name.startswith(record)
    assert words in first.sentence
    assert first.odd == (1,)
    assert "replicas_model.py" in first.line


def test_ranks_without_a_majority_are_not_judged(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = runs / "other_weights=mix"
    first = ranks(folder).first
    assert first is not None
    assert (first.step, first.reason, first.odd) == ("step0", "weight", ())
    assert "They differ from the first record on" in first.sentence
    assert main([str(folder)]) == 1
    out = capsys.readouterr().out
    assert out.startswith("disagree: step0: Module.embedding.Embedding.forward.0 has other weights")
    assert "no majority" in out


def test_groups_that_are_given_are_believed(runs: Path) -> None:
    folder = runs / "other_weights=mix"
    assert ranks(folder, groups=[[0], [1], [2]]).first is None
    assert ranks(runs / "touched_weight=L0", groups=[[0, 2]]).first is None
    with pytest.raises(UsageError, match="rank 7"):
        ranks(folder, groups=[[0, 7]])


def test_the_place_in_the_mesh_says_who_holds_a_copy(tmp_path: Path) -> None:
    """On a mesh of 2 x 2, replicated along the rows: ranks 0 and 2 hold one shard, 1 and 3 the other."""
    for change, first in ((None, None), (2, "rank 2"), (3, "rank 3")):
        folder = tmp_path / str(change)
        for rank in range(4):
            mesh = {"device_mesh": [[0, 1], [2, 3]], "placements": [{"Replicate": {}}, {"Shard": {"dim": 0}}]}
            x = tensor(Max=float(rank % 2) + (1.5 if rank == change else 0.0)) | mesh | {"global_shape": [8]}
            write(
                folder, rank, {"Module.a.Linear.forward.0": {"input_args": [], "parameters": {"weight": x}}}
            )
        found = ranks(folder)
        assert found.checked["placement"] == 2
        assert (found.first is None) == (first is None)
        if found.first is not None and first is not None:
            assert first in found.first.sentence
            assert found.first.parting == ((0,), (2,)) if change == 2 else ((1,), (3,))


def test_shards_of_tensor_parallel_classes_are_not_compared(tmp_path: Path) -> None:
    for rank in range(2):
        weights = {"weight": tensor(Max=float(rank) + 0.5)}
        norm = {"weight": tensor()}
        write(
            tmp_path,
            rank,
            {
                "Module.norm.LayerNorm.forward.0": {"input_args": [tensor()], "parameters": norm},
                "Module.up.ColumnParallelLinear.forward.0": {"input_args": [tensor()], "parameters": weights},
            },
        )
    found = ranks(tmp_path)
    assert found.first is None
    assert "ColumnParallelLinear" in found.replicas.why
    asked = ranks(tmp_path, agree=["Module.up.*.parameters.weight"]).first
    assert asked is not None
    assert asked.reason == "asked"


def test_a_pattern_that_matches_nothing_is_no_agreement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in range(2):
        write(tmp_path, rank, {"Functional.relu.0.forward": {"input_args": [tensor()], "output": [tensor()]}})
    assert main([str(tmp_path), "--agree", "*.output.*", "Module.up.*"]) == 2
    said = capsys.readouterr().err
    assert "No tensor that several ranks have matches 'Module.up.*'" in said and "output.*'," not in said


def test_the_same_arguments_must_give_the_same_result(tmp_path: Path) -> None:
    """Of measured numbers; of classes and flags equal statistics say nothing, nor of a function that draws."""
    for name, given, blamed in (
        ("Functional.linear", tensor(), True),
        ("Functional.dropout", tensor(), False),
        ("Functional.one_hot", tensor(Max=3, Min=0, dtype="torch.int64"), False),
    ):
        folder = tmp_path / name
        for rank in range(2):
            record = {"input_args": [given], "input_kwargs": {}, "output": [tensor(Norm=2.0 + rank)]}
            write(folder, rank, {f"{name}.0.forward": record})
        assert (ranks(folder).first is not None) == blamed, name


@pytest.mark.parametrize("tolerance", [None, 1e-3])
def test_whole_numbers_that_are_one_as_floats_disagree_in_words(
    tolerance: float | None, tmp_path: Path
) -> None:
    for rank in range(3):
        table = tensor(dtype="torch.int64", Max=2**60 + rank // 2, Min=0)
        write(
            tmp_path, rank, {"Module.a.Table.forward.0": {"input_args": [], "parameters": {"weight": table}}}
        )
    found = ranks(
        tmp_path, agree=["*.parameters.*"], **({} if tolerance is None else {"tolerance": tolerance})
    )
    assert found.first is not None and f"Max {2**60 + 1} against {2**60}" in found.sentence


def test_one_rank_cannot_be_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, 0, {"Functional.relu.0.forward": {"input_args": [tensor()], "output": [tensor()]}})
    with pytest.raises(FormatError, match="it takes two"):
        ranks(tmp_path)
    assert main([str(tmp_path)]) == 2
    assert "probe ranks: step0/rank0 is all there is" in capsys.readouterr().err


@pytest.mark.parametrize(
    "record", ["other inputs", "no numbers", "weights that no module says are replicated"]
)
def test_nothing_to_compare_is_no_agreement(
    record: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in range(2):
        given = tensor(Max=rank + 1.5)
        if record == "no numbers":
            no_numbers = {
                key: value for key, value in tensor().items() if key not in ("Max", "Min", "Mean", "Norm")
            }
            data = {"Module.a.Linear.forward.0": {"input_args": [], "parameters": {"weight": no_numbers}}}
        else:
            weight = [] if record == "other inputs" else [tensor(Max=rank + 1.5) | {"requires_grad": True}]
            data = {"Functional.linear.0.forward": {"input_args": [given, *weight], "output": [given]}}
        write(tmp_path, rank, data)
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().out.startswith("nothing compared: ranks 0, 1 have no numbers")
    found = ranks(tmp_path)
    assert found.state == "nothing compared" and sum(found.checked.values()) == 0


@contextmanager
def limited_memory() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("group", ["0-99999999999", "0-1,1-9" + 30 * "9", "1-0", "0-", "0,"])
def test_groups_that_are_none(group: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(2):
        write(tmp_path, rank, {"Functional.relu.0.forward": {"input_args": [tensor()], "output": [tensor()]}})
    with limited_memory():
        assert main([str(tmp_path), "--groups", group]) == 2
        with pytest.raises(UsageError, match="name rank 2, but the dump has the ranks 0, 1"):
            ranks(tmp_path, groups=[range(10**11)])
    assert f"--groups wants ranks as 0,2 or 0-3, not {group!r}" in capsys.readouterr().err


@pytest.mark.parametrize("groups", [["0,1", "0,1"], ["0-1", "1-2"], ["0,0,1"]])
def test_a_rank_in_two_groups_is_refused(
    groups: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What its group holds would be counted twice."""
    for rank in range(3):
        write(tmp_path, rank, {"Functional.relu.0.forward": {"input_args": [tensor()], "output": [tensor()]}})
    assert main([str(tmp_path), "--groups", *groups]) == 2
    assert f"The groups name rank {groups[0][2] if '-' in groups[0] else 0} twice" in capsys.readouterr().err


def test_groups_may_name_a_rank_that_only_a_later_step_has(tmp_path: Path) -> None:
    for step, rank in ((0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (1, 3)):
        weight = tensor(Norm=2.5 if rank == 3 else 2.0)
        write(tmp_path, rank, {"Module.a.Linear.forward.0": {"parameters": {"weight": weight}}}, step)
    first = ranks(tmp_path, groups=[(0, 1), (2, 3)]).first
    assert first is not None and first.parting == ((2,), (3,))


def test_ranks_that_are_missing_are_noted(tmp_path: Path) -> None:
    relu = {"Functional.relu.0.forward": {"input_args": [tensor()], "output": [tensor()]}}
    for rank in (0, 1, 3):
        write(tmp_path, rank, relu)
    write(tmp_path, 0, relu, 1)
    (tmp_path / "step0" / "rank4").mkdir()
    (tmp_path / "step0" / "rank4" / "stack.json").write_text("{}")
    found = ranks(tmp_path)
    assert found.numbers == (0, 1, 3) and found.first is None
    assert list(found.skipped) == ["step0/rank4"]
    assert found.notes[0] == "step1 has rank 0 alone: not compared."
    assert found.notes[1].startswith("There is no rank 2, though")


def test_which_ranks_a_step_lacks_is_told(tmp_path: Path) -> None:
    """Of the step that lacks them, whether it is the first or another."""
    relu = {"Functional.relu.0.forward": {"input_args": [tensor()], "output": [tensor()]}}
    for step, rank in ((0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 0), (2, 2)):
        write(tmp_path, rank, relu, step)
    said = ["step0 lacks rank 2, which other steps have.", "step2 lacks rank 1, which other steps have."]
    assert [note for note in ranks(tmp_path).notes if "lacks" in note] == said


def late(folder: Path, rank: int, norm: float, cls: str = "Linear", size: int = 4) -> Path:
    """Three ranks with equal weights; one has no record of step0, and maybe another weight in step1."""
    for step, each in ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)):
        own = norm if each == rank else 2.0
        data = {
            f"Module.{name}.{cls}.forward.0": {"parameters": {"weight": tensor(Norm=n, shape=[size])}}
            for name, n in (("a", own), ("b", 3.0 + step))
        }
        if (step, each) != (0, rank):
            write(folder, each, data, step)
    return folder


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("torn", [False, True])
def test_a_rank_that_the_first_step_lacks_is_compared_in_the_next(
    rank: int, torn: bool, tmp_path: Path
) -> None:
    late(tmp_path, rank, 2.5)
    if torn:
        (tmp_path / "step0" / f"rank{rank}").mkdir()
        (tmp_path / "step0" / f"rank{rank}" / "dump.json").write_text('{"task": "statis')
    found = ranks(tmp_path)
    assert found.state == "disagree" and found.numbers == (0, 1, 2)
    first = found.first
    assert first is not None and (first.step, first.odd) == ("step1", (rank,))
    others = "ranks 1, 2" if rank == 0 else "ranks 0, 2"
    assert f"In step0 {others} agreed, and rank {rank} had no record of it" in first.sentence


def test_a_healthy_rank_that_the_first_step_lacks_agrees(tmp_path: Path) -> None:
    found = ranks(late(tmp_path, 1, 2.0))
    assert found.state == "agree" and found.checked["weight"] == 4
    assert found.sentence.startswith("agree: ranks 0, 1, 2 agree on all 4 tensors")


def test_a_late_rank_of_which_nothing_says_whose_replica_it_is_is_noted(tmp_path: Path) -> None:
    """Its weights are its own: it may be another shard."""
    late(tmp_path, 1, 2.5, "ColumnParallelLinear")
    with changed(tmp_path / "step1" / "rank1") as data:
        data["Module.b.ColumnParallelLinear.forward.0"]["parameters"]["weight"]["Norm"] = 9.0
    found = ranks(tmp_path)
    assert found.first is None
    said = "step1: rank 1 had no record before, and nothing shows whose replica it is: its weights are not compared."
    assert said in found.notes


def test_a_table_is_written(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "table.csv"
    assert main([str(runs / "touched_weight=L0"), "-o", str(file), "--groups", "0-2"]) == 1
    with file.open() as opened:
        rows = list(csv.DictReader(opened))
    assert [row["step"] for row in rows] == ["step1", "step2"]
    assert {row["ranks"] for row in rows} == {"[[0, 2], [1]]"}
    assert "the odd one out: rank 1" in capsys.readouterr().out
    assert main([str(runs / "honest=L0"), "--groups", "zero"]) == 2
    assert "--groups wants ranks" in capsys.readouterr().err


def summed(folder: Path, *each: dict[str, str | float]) -> Path:
    """A dump of ranks that begin with a weight, each with its checksum or other numbers."""
    for rank, own in enumerate(each):
        weight = {"weight": tensor(**own)}
        record = {"input_args": [], "input_kwargs": {}, "output": [], "parameters": weight}
        write(folder, rank, {"Module.fc.Linear.forward.0": record})
    return folder


ONE, TWO, NONE = {"md5": "00000001"}, {"md5": "00000002"}, dict[str, str | float]()
MIXED = "step0: only some ranks have checksums"


@pytest.mark.parametrize(
    "each",
    [
        (NONE, ONE, NONE, NONE),
        (ONE, NONE),
        (ONE, NONE, ONE),
        (ONE, {"md5": "0" * 16}),
        ({"md5": "0" * 16}, NONE, ONE),
    ],
)
def test_a_checksum_that_only_some_ranks_have_is_no_disagreement(
    tmp_path: Path, each: tuple[dict[str, str | float], ...]
) -> None:
    found = ranks(summed(tmp_path, *each))
    assert found.state == "agree" and found.checked == {"weight": 1}
    assert [note.startswith(MIXED) for note in found.notes] == [True]


def test_what_is_known_is_told_beside_ranks_without_checksums(tmp_path: Path) -> None:
    other: dict[str, str | float] = {"Max": 7.0}
    found = ranks(summed(tmp_path / "numbers", ONE, NONE, other)).first
    assert found is not None and (found.parting, found.odd) == (((0, 1), (2,)), (2,))
    assert "Max 7 against 1.25" in found.sentence
    found = ranks(summed(tmp_path / "bits", NONE, ONE, ONE, TWO)).first
    assert found is not None and (found.parting, found.odd) == (((1, 2), (3,)), (3,))
    assert "other bits" in found.sentence
    found = ranks(summed(tmp_path / "undecided", NONE, ONE, TWO)).first
    assert found is not None and (found.parting, found.odd) == (((1,), (2,)), ())
    found = ranks(summed(tmp_path / "all", ONE, ONE, TWO)).first
    assert found is not None and found.odd == (2,)


def test_ranks_that_all_have_checksums_get_no_note_of_them(tmp_path: Path) -> None:
    assert not any("checksums" in note for note in ranks(summed(tmp_path, ONE, ONE)).notes)
