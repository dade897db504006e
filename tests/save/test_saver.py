"""Configuration, steps, ranks, and the module's own save and step."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import probe_format
import probe_save as ps
import pytest
from probe_format.errors import ConfigError, UsageError
from probe_format.write import Claim
from probe_save.described_values import DescribedValues
from probe_save.saved_step import SavedStep
from probe_save.step_journal import StepJournal
from saving import data, document
from signalled import Late, rings_in


def steps(dump: Path) -> list[str]:
    return sorted(str(p.relative_to(dump)) for p in dump.glob("step*/*"))


def test_counts_by_name_and_step(tmp_path: Path) -> None:
    ps.configure(dump_path=tmp_path)
    for _ in range(2):
        for name in ("a", "b", "a"):
            ps.save(1, name, save_backward=False)
        ps.step()
    assert steps(tmp_path) == ["step0/rank", "step1/rank"]
    for step in (0, 1):
        assert list(data(tmp_path, step)) == ["a.0.debug", "b.0.debug", "a.1.debug"]


@pytest.mark.parametrize(
    ("names", "values", "gradients"),
    [
        (["x", "x_grad", "x"], "x.0 x_grad.1 x.1", "x_grad.0 x_grad.2 x_grad_grad.1"),
        (["x_grad", "x", "x"], "x_grad.0 x.0 x.1", "x_grad.1 x_grad.2 x_grad_grad.0"),
    ],
)
def test_a_name_that_ends_like_a_gradient_overwrites_none(
    names: list[str], values: str, gradients: str, tmp_path: Path
) -> None:
    with ps.Saver(dump_path=tmp_path) as saver:
        for number, name in enumerate(names):
            saver.save(number, name)
    found = data(tmp_path)
    kept = [f"{name}.debug" for name in values.split()]
    assert [(name, v["value"]) for name, v in found.items() if v] == [*zip(kept, range(3), strict=True)]
    assert sorted(name for name, v in found.items() if v is None) == [
        f"{name}.debug" for name in gradients.split()
    ]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"level": "L1"}, "'L1' is not single-point save"),
        ({"overwite": True}, "Did you mean 'overwrite'"),
        ({"config_path": [1]}, "path of a file"),
        ({"config_path": "."}, "is a directory"),
    ],
    ids=str,
)
def test_wrong_settings_are_told(settings: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        ps.Saver(**{"dump_path": tmp_path / "d", **settings})
    assert not (tmp_path / "d").exists()


def test_every_key_of_the_configuration_is_a_keyword(tmp_path: Path) -> None:
    with ps.configure(dump_path=tmp_path, zero_count=True, level="debug") as saver:
        saver.save(np.zeros(3), "x")
    assert data(tmp_path)["x.0.debug"]["zero_count"] == 3


def test_steps_and_ranks_that_are_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    for rank, expected in (([0], []), (["0-1"], ["step1/rank1", "step3/rank1"])):
        dump = tmp_path / str(rank[0])
        with ps.Saver(dump_path=dump, step=[1, "3-4"], rank=rank) as saver:
            for _ in range(4):
                saver.save(1, "x")
                saver.step()
        assert steps(dump) == expected


def test_nothing_is_made_before_the_first_value(tmp_path: Path) -> None:
    with ps.Saver(dump_path=tmp_path) as saver:
        saver.step()
        assert saver.directory is None
        saver.save(1, "x")
        assert saver.directory == tmp_path / "step1" / "rank"
    assert steps(tmp_path) == ["step1/rank"]


def test_init_step(tmp_path: Path) -> None:
    with ps.Saver(dump_path=tmp_path) as saver:
        saver.set_init_step(7)
        saver.save(1, "x")
        with pytest.raises(UsageError, match="before the first save"):
            saver.set_init_step(8)
    assert steps(tmp_path) == ["step7/rank"]


CONFIG = {
    "task": "statistics", "dump_path": "./dump", "rank": [], "level": "debug",
    "statistics": {"summary_mode": "md5"},
}  # fmt: skip


@pytest.mark.parametrize("kind", ["json", "yaml"])
@pytest.mark.parametrize("way", ["argument", "variable"])
def test_a_file_configures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, way: str) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / f"config.{kind}"
    yaml = "task: statistics\ndump_path: ./dump\nlevel: debug\nstatistics:\n  summary_mode: md5\n"
    path.write_text(json.dumps(CONFIG) if kind == "json" else yaml)
    if way == "argument":
        ps.configure(path)
    else:
        monkeypatch.setenv("PROBE_SAVE_CONFIG", str(path))
    ps.save(np.ones(4, np.float32), "x")
    ps.step()
    assert len(data(tmp_path / "dump")["x.0.debug"]["md5"]) == 8


def test_not_configured_says_how() -> None:
    with pytest.raises(UsageError, match=r"configure\(dump_path.*PROBE_SAVE_CONFIG"):
        ps.save(1, "x")
    with pytest.raises(UsageError, match="PROBE_SAVE_CONFIG"):
        ps.step()


def test_every_mistake_is_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"level": "L1",\n "task": "tensors",\n "step": ["3-1"]}')
    with pytest.raises(ConfigError) as raised:
        ps.configure(path, dump_path=tmp_path / "dump")
    said = str(raised.value)
    assert "config.json:1 level: 'L1' is not single-point save" in said
    assert "'tensors'" in said
    assert "3-1" in said
    assert not (tmp_path / "dump").exists()
    with pytest.raises(ConfigError, match="structure"):
        ps.configure(task="structure", dump_path=tmp_path / "dump")


def test_an_earlier_dump_is_left_alone(tmp_path: Path) -> None:
    with ps.Saver(dump_path=tmp_path, task="tensor") as saver:
        saver.save(np.zeros(3), "x")
    before = (tmp_path / "step0" / "rank" / "debug.json").read_bytes()
    with pytest.raises(ConfigError, match="already holds a dump"):
        ps.Saver(dump_path=tmp_path)
    assert (tmp_path / "step0" / "rank" / "debug.json").read_bytes() == before
    with ps.Saver(dump_path=tmp_path, task="tensor", overwrite=True) as saver:
        saver.save(np.ones(3), "y")
    assert list(data(tmp_path)) == ["y.0.debug", "y_grad.0.debug"]
    assert [p.name for p in tmp_path.rglob("*.npy")] == ["y.0.debug.npy"]


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({}, "step0/rank3, step1/rank, step2/rank "),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "step0/rank, step0/rank3, step1/rank and 1 more "),
        ({"RANK": "0"}, "step0/rank, step1/rank, step2/rank "),  # of how many, nobody knows
        ({"RANK": "1", "WORLD_SIZE": "2"}, None),  # its first process tells
    ],
)
def test_what_a_run_with_overwrite_did_not_reach_is_told(
    given: dict[str, str], left: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ps.Saver(dump_path=tmp_path, overwrite=True) as saver:
        for _ in range(3):
            saver.save(1, "x")
            saver.step()
    (tmp_path / "step0" / "rank3").mkdir()
    (tmp_path / "step0" / "rank3" / "debug.json").write_text("{}")
    for path in tmp_path.glob("step*/rank*"):
        os.utime(path, (1, 1))  # as if before this process
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    saver = ps.Saver(dump_path=tmp_path, overwrite=True)
    saver.save(2, "y")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        saver.close()
        saver.close()
    words = [f"Probe: {tmp_path} still has {left}of an earlier dump, which this run did not reach."]
    assert [str(each.message).partition(" Commands")[0] for each in told] == (words if left else [])


def test_configure_again_ends_what_was_begun(tmp_path: Path) -> None:
    first = ps.configure(dump_path=tmp_path / "a")
    ps.save(1, "x")
    ps.configure(dump_path=tmp_path / "b")
    ps.save(2, "x")
    assert first.closed
    with pytest.raises(UsageError, match="closed"):
        first.save(1, "x")
    assert data(tmp_path / "a")["x.0.debug"]["value"] == 1
    ps.step()
    assert data(tmp_path / "b")["x.0.debug"]["value"] == 2


def test_two_savers_never_share_a_folder(tmp_path: Path) -> None:
    with ps.Saver(dump_path=tmp_path) as one, ps.Saver(dump_path=tmp_path) as two:
        one.save(1, "x")
        two.save(2, "x")
        assert one.directory != two.directory
    found = probe_format.open(tmp_path).step(0).ranks
    assert sorted(rank.records["x.0.debug"].json["value"] for rank in found) == [1, 2]


def test_what_cannot_be_written_is_told_and_the_run_goes_on(tmp_path: Path) -> None:
    with ps.Saver(dump_path=tmp_path / "dump", task="tensor") as saver:
        saver.save(np.zeros(3), "before")
        (tmp_path / "dump/step0/rank/dump_tensor_data/before.0.debug.npy").unlink()
        (tmp_path / "dump/step0/rank/dump_tensor_data").rmdir()
        with pytest.warns(RuntimeWarning, match="could not write everything") as caught:
            assert saver.save(5, "y") == 5
            array = np.ones(3)
            assert saver.save(array, "z") is array
        saver.save(np.ones(3), "later")  # said once
        with pytest.warns(RuntimeWarning, match="2 values could not be saved as they are") as told:
            saver.step()
        saver.save(np.ones(3), "next step")
    assert {w.filename for w in (*caught, *told)} == {__file__}
    (rank,) = probe_format.open(tmp_path / "dump").step(0).ranks
    assert rank.records["y.0.debug"].json["value"] == 5
    for name in ("z", "later"):  # the numbers are there, and the reason why there is no file
        (tensor,) = rank.records[f"{name}.0.debug"].tensors
        assert tensor.norm == 3**0.5 and tensor.file is None
        assert "No such file" in tensor.json["lost"]
    assert data(tmp_path / "dump", 1)["next step.0.debug"]["Max"] == 1


def test_a_class_may_have_no_hash(tmp_path: Path) -> None:
    class Meta(type):
        def __eq__(cls, other: object) -> bool:
            return cls is other

    class Pair(dict[str, int], metaclass=Meta):
        pass

    with ps.Saver(dump_path=tmp_path) as saver:
        saver.save([Pair(a=1), Pair(b=2)], "x")
    (one, other) = data(tmp_path, 0)["x.0.debug"]
    assert one["a"]["value"] == 1 and other["b"]["value"] == 2


def test_a_fault_of_ours_costs_one_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("ours")

    with ps.Saver(dump_path=tmp_path) as saver:
        saver.save(1, "x")
        monkeypatch.setattr("probe_runtime.collect.Walk.value", broken)
        assert saver.save(2, "x") == 2
        monkeypatch.undo()
        saver.save(3, "x")
        with pytest.warns(RuntimeWarning, match="1 values could not be saved"):
            saver.step()
    rank = tmp_path / "step0" / "rank"
    assert "ZeroDivisionError" in (rank / "dump_error_info.log").read_text()
    found = document(rank)["data"]
    assert "ZeroDivisionError" in found["x.1.debug"]["unsupported"]
    assert found["x.2.debug"]["value"] == 3


def test_at_exit_everything_is_complete(tmp_path: Path) -> None:
    code = "import probe_save as ps\nps.configure(dump_path='dump')\nps.save(1, 'x')\nraise SystemExit(3)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=dict(os.environ), check=False)
    assert done.returncode == 3
    assert data(tmp_path / "dump")["x.0.debug"]["value"] == 1


WITHOUT = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("probe_torch", "torch", "mindspore", "probe_mindspore"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hide())
import numpy as np, probe_save as ps
from probe_format.errors import UsageError
ps.configure(dump_path="dump", task="tensor")
ps.save(np.ones(3), "x")
class Tensor: pass
Tensor.__module__ = "torch"
try:
    ps.save({"deep": [Tensor()]}, "t")
except UsageError as error:
    print(error)
ps.step()
assert not {"torch", "mindspore"} & set(sys.modules)
"""


def test_without_a_framework(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "pip install 'probe-save[torch]'" in done.stdout
    assert list(data(tmp_path / "dump")) == ["x.0.debug", "x_grad.0.debug"]


def test_overwrite_clears_and_writes_through_no_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "keep.npy").write_text("theirs")
    rank = tmp_path / "dump" / "step0" / "rank"
    rank.mkdir(parents=True)
    (rank / "dump_tensor_data").symlink_to(victim)
    saver = ps.Saver(dump_path=tmp_path / "dump", task="tensor", overwrite=True)
    with pytest.warns(RuntimeWarning, match="is a link"):
        saver.save(np.zeros(3), "x")
    saver.close()
    assert [path.name for path in victim.iterdir()] == ["keep.npy"]


def test_an_interrupt_as_a_value_begins_leaves_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C may come when the value is counted and nothing else is done: step() waited for it for ever."""
    enter = SavedStep.enter

    def interrupted(self: SavedStep) -> bool:
        enter(self)
        raise KeyboardInterrupt

    saver = ps.Saver(dump_path=tmp_path)
    saver.save(1, "a")
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(SavedStep, "enter", interrupted)
        saver.save(2, "b")
    monkeypatch.setattr(threading.Condition, "wait_for", lambda gate, done: done() or pytest.fail("it waits"))
    saver.step()
    assert "a.0.debug" in data(tmp_path)
    saver.close()


@pytest.fixture
def handled() -> Iterator[Callable[[Callable[[], object]], None]]:
    """Give what sets a handler of SIGUSR1. A wait without an end is one of ten seconds."""
    before = signal.getsignal(signal.SIGUSR1), signal.getsignal(signal.SIGALRM)
    signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it waits for itself"))
    signal.alarm(10)
    yield lambda work: signal.signal(signal.SIGUSR1, lambda *_: work()) and None
    signal.alarm(0)
    signal.signal(signal.SIGUSR1, before[0])
    signal.signal(signal.SIGALRM, before[1])


@pytest.mark.parametrize("call", ["save", "step", "close"])
def test_a_signal_handler_may_come_while_a_step_is_opened(
    call: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    handled: Callable[[Callable[[], object]], None],
) -> None:
    """Python runs it in the thread that opens the step and holds its lock: it cannot wait for that."""
    take = Claim.take

    def interrupted(self: Claim, *given: Any, **more: Any) -> Path:
        os.kill(os.getpid(), signal.SIGUSR1)
        return take(self, *given, **more)

    saver = ps.Saver(dump_path=tmp_path)
    handled((lambda: saver.save(2, "late")) if call == "save" else getattr(saver, call))
    with (
        monkeypatch.context() as patched,
        pytest.warns(RuntimeWarning, match=rf"{call}\(\) in a signal handler"),
    ):
        patched.setattr(Claim, "take", interrupted)
        saver.save(1, "a")
    saver.save(3, "b")
    saver.close()
    assert [name for name in data(tmp_path) if "grad" not in name] == ["a.0.debug", "b.0.debug"]
    missed = json.loads((tmp_path / "step0/rank/report.json").read_text())["counts"]["left_out"]
    assert missed == (
        {"values that a signal handler saved as the step was opened": 1} if call == "save" else {}
    )


def test_a_signal_handler_may_save_while_the_first_saver_is_made(tmp_path: Path) -> None:
    """In a process of its own: that of the tests has made one."""
    code = """
import os, signal
import probe_save as ps

made = ps.Saver.__init__

def interrupted(self, *given, **more):
    ps.Saver.__init__ = made
    os.kill(os.getpid(), signal.SIGUSR1)
    made(self, *given, **more)

signal.signal(signal.SIGUSR1, lambda *_: ps.save(1, "handler", save_backward=False))
signal.alarm(60)  # it waits for itself
ps.Saver.__init__ = interrupted
ps.save(2, "run", save_backward=False)
ps.step()
"""
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"dump_path": str(tmp_path / "dump")}))
    environment = {**os.environ, "PROBE_SAVE_CONFIG": str(config)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done
    assert list(data(tmp_path / "dump")) == ["handler.0.debug", "run.0.debug"]


@pytest.mark.parametrize(
    ("owner", "name"), [(DescribedValues, "describe"), (StepJournal, "append"), (SavedStep, "end")], ids=str
)
def test_what_a_signals_handler_raises_is_the_runs(
    owner: Any, name: str, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    with ps.Saver(dump_path=tmp_path) as saver:
        for step in range(3):
            saver.save(1, "a", save_backward=False)
            with rings_in(owner, name) if step == 1 else nullcontext():
                try:
                    saver.save(2, "b", save_backward=False)
                    saver.step()
                except Late:
                    if name == "end":
                        continue
                    saver.save(2, "b", save_backward=False)
                    saver.step()
                else:
                    assert step != 1
    whole = ["a.0.debug", "b.0.debug"]
    assert [list(data(tmp_path, step)) for step in (0, 2)] == [whole, whole]
    if name == "end":
        assert "a signal's handler raised Late" in str(recwarn.pop().message)
    else:  # the value that it cost, its number
        assert list(data(tmp_path, 1)) == ["a.0.debug", "b.1.debug"]
        assert not document(tmp_path / "step1" / "rank").get("faults")
