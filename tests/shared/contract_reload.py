"""`reload` and `dump_enable`: the configuration file changes in the running job, and each step is of one of them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from documents import records, strict
from framework import Framework
from probe_format.layout import find_steps
from probe_format.read.verify import verify

Json = Any


class Job:
    """A running job: a file, a debugger, a model."""

    def __init__(self, framework: Framework, folder: Path, **arguments: Any) -> None:
        self.framework, self.file, self.dump = framework, folder / "probe.json", folder / "dump"
        self.arguments = arguments
        self.net = framework.sequence(framework.linear(2, 2), framework.linear(2, 2))
        self.debugger: Any = None

    def write(self, **keys: Any) -> None:
        """Write the file as a user's editor does."""
        self.put(json.dumps({"dump_path": str(self.dump), **keys}))

    def put(self, text: str) -> None:
        before = self.file.stat().st_mtime_ns if self.file.exists() else 0
        new = self.file.with_suffix(".new")
        new.write_text(text)
        os.utime(new, ns=(before + 1_000_000_000, before + 1_000_000_000))
        new.rename(self.file)

    def open(self, **keys: Any) -> Job:
        self.write(**keys)
        self.debugger = self.framework.debugger(str(self.file), **self.arguments)
        return self

    def start(self) -> None:
        self.debugger.start(self.net)

    def end(self) -> None:
        self.debugger.stop()
        self.debugger.step()

    def step(self) -> None:
        self.start()
        self.train()
        self.end()

    def train(self) -> None:
        self.framework.gelu()
        self.framework.train(self.net, self.framework.ones(3, 2))

    def header(self, step: int) -> Json:
        return strict(self.dump / f"step{step}" / "rank" / "dump.json")

    @property
    def steps(self) -> list[int]:
        return [each.step for each in find_steps(self.dump)]


@pytest.fixture
def job(framework: Framework, tmp_path: Path) -> Iterator[Callable[..., Job]]:
    made: list[Job] = []

    def opened(arguments: Any = None, **keys: Any) -> Job:
        made.append(Job(framework, tmp_path, **(arguments or {})).open(**keys))
        return made[-1]

    yield opened
    for each in made:
        each.debugger.close()


def levels_under_probe_run(framework: Framework, folder: Path, script: str) -> dict[str, str]:
    """Run a script that has no line of Probe, and of which each step writes another file; the level of each step."""
    (folder / "x.py").write_text(_WRITES + script)
    (folder / "probe.yaml").write_text("reload: true\nlevel: L0\n")
    words = ("run", "--config", "probe.yaml", "--dump_path", "dump", "x.py")
    done = framework.forks.run("-m", "probe_format", *words, cwd=folder)
    assert "from step 2 on: level 'mix' (was 'L0')" in done.stderr
    assert done.stderr.count("settings stay as they are") == 1
    return {
        step.path.name: strict(step.path / "rank" / "dump.json")["level"]
        for step in find_steps(folder / "dump")
    }


_WRITES = """
import os
FILES = ["", "reload: true\\nlevel: mix\\n", "level: [", "", "reload: true\\nlevel: L1\\n", ""]
def write(text):
    if text:
        with open("new", "w") as file:
            file.write(text)
        os.rename("new", "probe.yaml")
"""
LEVELS = {f"step{n}": level for n, level in enumerate(["L0", "L0", "mix", "mix", "mix", "L1"])}


def _kinds(job: Job, step: int) -> set[str]:
    return {name.split(".")[0] for name in records(job.dump, step)}


def test_level_and_scope_change_with_a_broken_file_in_between(job: Any, framework: Framework) -> None:
    dense = f"{framework.kind}.1.{framework.linear.__name__}.forward.0"
    run = job(level="L1", reload=True)
    run.step()
    run.start()
    with pytest.warns(RuntimeWarning, match=r"read again; from step 2 on: level 'mix' \(was 'L1'\)"):
        run.write(level="mix", reload=True)
        run.train()
        run.end()
    run.step()
    with pytest.warns(RuntimeWarning, match="settings stay as they are") as said:
        for text in ('{"level": "L0", "sco', '{"level": "L0", "sco', ""):
            run.put(text)
            run.step()
    assert len([each for each in said if "settings stay" in str(each.message)]) == 2, "one of each"
    with pytest.warns(RuntimeWarning, match="from step 7 on: level 'L0'.* scope"):
        run.write(level="L0", scope=[dense, dense], reload=True)
        run.step()
    run.step()
    run.debugger.close()
    assert [run.header(n)["level"] for n in range(8)] == ["L1"] * 2 + ["mix"] * 5 + ["L0"]
    assert framework.kind not in _kinds(run, 1), "step 1 had begun before the file was written"
    assert {framework.kind, "Functional"} <= _kinds(run, 2) == _kinds(run, 6)
    assert {name for name in records(run.dump, 7) if ".forward" in name} == {dense}
    assert {verdict.state for verdict in verify(run.dump)} == {"complete"}


def test_task_and_steps_change(job: Any) -> None:
    run = job(task="statistics", reload=True, step=["1-2"])
    run.step()
    run.write(task="tensor", reload=True, step=[3, "5-90/2"], tensor={"data_mode": ["forward"]})
    for _ in range(6):
        run.step()
    assert run.steps == [1, 3, 5]
    assert [run.header(n)["task"] for n in run.steps] == ["statistics", "tensor", "tensor"]
    assert any((run.dump / "step5" / "rank" / "dump_tensor_data").iterdir())
    assert not any("backward" in name or "grad" in name for name in records(run.dump, 5))


def test_keep_changes(job: Any) -> None:
    run = job(reload=True)
    for _ in range(4):
        run.step()
    run.write(reload=True, keep={"last": 3})
    for _ in range(5):
        run.step()
    assert run.steps == [0, 1, 2, 3, 4, 6, 7, 8], "what was written before stays"
    run.write(reload=True, keep={"last": 1})
    run.step()
    run.step()
    assert run.steps == [0, 1, 2, 3, 4, 10]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"level": "L7"}, ["probe.json:1 level", "L7", "mix"]),
        ({"levle": "mix"}, ["levle", "Did you mean 'level'?"]),
        ({"dump_path": "./elsewhere"}, ["dump_path", "./elsewhere", "running job", "another"]),
        ({"reload": False}, ["reload", "running job"]),
        ({"step_ends": "all"}, ["step_ends", "running job"]),
        ({"models": ["Net"]}, ["models", "running job"]),
        ({"level": "debug"}, ["level", "cannot change from 'mix' to 'debug'"]),
    ],
    ids=str,
)
def test_what_cannot_be_taken_is_said_and_nothing_of_it_holds(job: Any, keys: Json, words: list[str]) -> None:
    run = job(reload=True, level="mix")
    run.write(**{"reload": True, "level": "L0", "task": "tensor", **keys})
    with pytest.warns(RuntimeWarning, match="settings stay as they are") as said:
        run.step()
    run.step()
    run.debugger.close()
    (text,) = [str(each.message) for each in said if "settings stay" in str(each.message)]
    assert not [word for word in words if word not in text], text
    assert [(run.header(n)["level"], run.header(n)["task"]) for n in run.steps] == [("mix", "statistics")] * 2


def test_a_file_that_is_gone(job: Any) -> None:
    run = job(reload=True, level="L0")
    run.file.unlink()
    with pytest.warns(RuntimeWarning, match="there is no such file") as said:
        run.step()
        run.step()
    assert len(said) == 1
    with pytest.warns(RuntimeWarning, match="level 'L1'"):
        run.write(reload=True, level="L1")
        run.step()
    run.step()
    assert [run.header(n)["level"] for n in run.steps] == ["L0", "L0", "L0", "L1"]


def test_dump_enable_turns_dumping_on_and_off(job: Any) -> None:
    run = job(dump_enable=False, level="L1")
    run.step()
    assert not run.dump.exists() or not run.steps
    run.write(dump_enable=True, level="mix")
    run.step(), run.step()
    run.write(level="L0")  # without the key, dumping stays on
    run.step(), run.step()
    run.write(dump_enable=False, level="L0")
    run.step(), run.step()
    run.write(level="mix")
    run.step(), run.step()
    run.write(level="mix", dump_enable=True)
    run.step(), run.step()
    run.debugger.close()
    assert {n: run.header(n)["level"] for n in run.steps} == {2: "mix", 3: "mix", 4: "L0", 5: "L0", 10: "mix"}


def test_arguments_win_over_a_file_that_changes(job: Any) -> None:
    run = job({"level": "L0"}, reload=True)
    run.write(reload=True, level="L1", extra_info=False)
    run.step(), run.step()
    assert [(run.header(n)["level"], run.header(n).get("extra_info")) for n in run.steps] == [
        ("L0", None),
        ("L0", False),
    ]


def test_a_second_debugger_with_the_file_is_the_same_one(job: Any, framework: Framework) -> None:
    run = job(reload=True, level="L0")
    run.step()
    run.write(reload=True, level="L1")
    assert framework.debugger(str(run.file)).session is run.debugger.session
    run.put("{")
    assert framework.debugger(str(run.file)).session is run.debugger.session


def test_what_was_registered_stays(job: Any, framework: Framework) -> None:
    from types import SimpleNamespace

    library = SimpleNamespace(__name__="library", twice=lambda x: x * 2)
    run = job(reload=True, level="L1")
    run.debugger.register_custom_api(library, "twice", "Mine")
    run.step()
    run.write(reload=True, level="mix", views=True)
    run.step()
    run.start()
    library.twice(framework.ones(2))
    run.end()
    run.debugger.restore_custom_api(library, "twice")
    run.start()
    library.twice(framework.ones(2))
    run.end()
    assert [any(name.startswith("Mine.") for name in records(run.dump, n)) for n in (2, 3)] == [True, False]


def test_a_file_that_does_not_change_is_not_read(
    job: Any, framework: Framework, monkeypatch: pytest.MonkeyPatch
) -> None:
    from probe_runtime.config import source

    run = job(reload=True, level="L0")
    looks, reads = [], []
    stat, load = os.stat, source.load

    def counted(path: Any, **keywords: Any) -> Any:
        if str(path) == str(run.file):
            looks.append(path)
        return stat(path, **keywords)

    monkeypatch.setattr(os, "stat", counted)
    monkeypatch.setattr(source, "load", lambda path: reads.append(path) or load(path))
    run.step(), run.step()
    assert (len(looks), len(reads)) == (2, 0), "one look a step"
    run.write(reload=True, level="L1")
    run.step(), run.step()
    assert len(reads) == 1


def test_there_is_nothing_to_read_again(framework: Framework, tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match="none to read again"):
        framework.debugger(dump_path=str(tmp_path), reload=True, level="L0").close()
    file = tmp_path / "probe.json"
    file.write_text(json.dumps({"dump_path": str(tmp_path / "dump")}))
    with pytest.warns(RuntimeWarning, match="nothing will be dumped"):
        framework.debugger(str(file), dump_enable=False).close()
