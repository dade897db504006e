"""`probe run` with MindSpore: it records what a careful user has recorded by hand, and the run's bits are its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import mindspore_loops as loops
import models_alike
import numpy as np
import pytest
from forks import free_port
from mindspore_launching import FORKS
from recorded import recorded
from test_distributed import launch

pytestmark = pytest.mark.slow
LOOPS = Path(loops.__file__)


def run(folder: Path, *words: str) -> tuple[list[str], list[str]]:
    """Return the lines that a run printed, and those in which Probe told something."""
    folder.mkdir(exist_ok=True)
    done = FORKS.run(*words, cwd=folder)
    told = [line for line in done.stderr.splitlines() if line.startswith("Probe: ")]
    return done.stdout.splitlines(), told


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[str, str]:
    """Return what each loop of these tests prints without Probe."""
    asked = {item.callspec.params.get("loop") for item in request.session.items if hasattr(item, "callspec")}
    names = [loop for loop in loops.LEVELS if loop in asked]
    printed, _ = run(tmp_path_factory.mktemp("plain"), str(LOOPS), ",".join(names))
    return {line.split()[0]: line for line in printed}


@pytest.mark.parametrize(
    "loop",
    [
        pytest.param(loop, marks=[pytest.mark.once] * (loop not in ("model", "jitted")))
        for loop in loops.LEVELS
    ],
)
def test_a_loop_is_recorded_as_by_hand(loop: str, plain: dict[str, str], tmp_path: Path) -> None:
    """By hand in a process of its own: MindSpore's kernels differ in a last bit by where in memory a tensor lies."""
    assert run(tmp_path / "hand", str(LOOPS), loop, ".") == ([plain[loop]], [])
    keys = ["--level", loops.LEVELS[loop], "--step", "[1, 2]", "--dump_path", "dump"]
    printed, told = run(tmp_path / "found", "-m", "probe_format", "run", *keys, str(LOOPS), loop)
    assert printed == [plain[loop]]
    assert told.pop(0).startswith("Probe: found the model Net")
    assert ["take turns" in line for line in told] == [True] * (loop == "in_turns")
    expected, found = recorded(tmp_path / "hand" / loop), recorded(tmp_path / "found" / "dump")
    for path in found if loop == "together" else ():  # docs/run.md, What it cannot see
        if path.endswith("construct.json"):
            assert (expected[path].pop("Jit.Adam.0.forward"), found[path].pop("Jit.Adam.0.forward")) == (
                "optimizer",
                None,
            )
    assert found == expected
    assert len(found) >= 8
    assert any(found[name]["data"] for name in found if name.endswith("step2/rank/dump.json"))


@pytest.mark.once
def test_one_line_and_the_environment_do_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    future = "from __future__ import annotations\n"
    source = LOOPS.read_text().replace(future, f"{future}import probe_mindspore.auto\n")
    (tmp_path / "x.py").write_text(source)
    (tmp_path / "probe.yaml").write_text("level: L0\ndump_path: dump\nfirst_step: 7\n")
    monkeypatch.setenv("PROBE_CONFIG", "probe.yaml")
    run(tmp_path, "x.py", "functional")
    assert sorted(path.name for path in (tmp_path / "dump").iterdir()) == [
        "step10",
        "step7",
        "step8",
        "step9",
    ]


@pytest.mark.once
def test_the_optimizers_own_count_is_taken(tmp_path: Path) -> None:
    resumed = (
        "    optimizer.global_step.set_data(ms.Tensor([40], ms.int32))\n    loss = nn.CrossEntropyLoss()"
    )
    source = LOOPS.read_text().replace("    loss = nn.CrossEntropyLoss()", resumed, 1)
    assert resumed in source
    (tmp_path / "x.py").write_text(source)
    keys = ["--level", "L0", "--first_step", "auto", "--step", "[42]", "--dump_path", "dump"]
    run(tmp_path, "-m", "probe_format", "run", *keys, "x.py", "functional")
    assert [path.name for path in (tmp_path / "dump").iterdir()] == ["step42"]


@pytest.mark.once
def test_two_ranks(tmp_path: Path) -> None:
    """With msrun itself, and the command itself."""
    dump, out = tmp_path / "dump", tmp_path / "found"
    out.mkdir()
    bin = Path(sys.executable).parent
    msrun = [sys.executable, "-m", "mindspore.parallel.cluster.run", "--worker_num=2", "--local_worker_num=2"]
    msrun += [f"--master_port={free_port()}", f"--log_dir={out / 'log'}", "--join=True"]
    command = [str(bin / "probe"), "run", "--level", "mix", "--dump_path", str(dump)]
    done = subprocess.run(
        [*msrun, *command, str(LOOPS.with_name("mindspore_ranks.py")), "-", str(out), "after"],
        capture_output=True, text=True, timeout=240, cwd=out,
        env={**os.environ, "PATH": f"{bin}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    logs = "".join(p.read_text(errors="replace")[-2000:] for p in sorted((out / "log").glob("worker*")))
    assert done.returncode == 0, f"{done.stdout[-2000:]}{done.stderr[-2000:]}{logs}"
    for rank, plain in enumerate(launch("-", tmp_path / "plain", "after")):
        found = np.load(out / f"{rank}.npz")
        assert list(plain) == list(found)
        for name in found:
            np.testing.assert_array_equal(plain[name], found[name])
    names = [str(path.relative_to(dump)) for path in dump.glob("*/*/dump.json")]
    assert sorted(names) == [f"step{step}/rank{rank}/dump.json" for step in (0, 1) for rank in (0, 1)]
    for document in (recorded(dump)[name] for name in names):
        assert "Cell.a.Dense.forward.0" in document["data"]
        assert "Cell.a.Dense.backward.0" in document["data"]


@pytest.mark.parametrize("when", ["collected", "never"])
def test_models_of_one_class_are_numbered_as_they_were_made(when: str, tmp_path: Path) -> None:
    words = models_alike.write(
        tmp_path,
        imports="from mindspore import nn, ops",
        kind="Cell",
        method="construct",
        tensor="ops.ones((2, 2))",
    )
    run(tmp_path, "-m", "probe_format", *words, when)
    data = json.loads((tmp_path / "dump/step0/rank/dump.json").read_text())["data"]
    assert list(data) == [f"Cell.{i}.inner.{kind}.forward.0" for i, kind in enumerate(models_alike.KINDS)]


COPIES = """
import copy, gc, weakref
import mindspore as ms
from mindspore import Tensor, nn, ops

net, teacher = nn.SequentialCell(nn.Dense(4, 2)), nn.SequentialCell(nn.Dense(4, 2))
optimizer = nn.SGD(net.trainable_params(), 0.1)
x = ops.ones((3, 4), ms.float32)

@ms.jit
def forward(model, x):
    return model(x).square().mean()

forward(teacher, x)
take = ms.value_and_grad(lambda x: forward(net, x), None, optimizer.parameters)
copies = []
for step in range(3):
    loss, gradients = take(x)
    optimizer(gradients)
    best = copy.deepcopy(net)
    best(x).asnumpy()
    copies.append(weakref.ref(best))
    del best
    gc.collect()
print([copy() for copy in copies])
"""


@pytest.mark.once
def test_no_cell_is_kept_and_a_jitted_function_calls_what_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(COPIES)
    words = [sys.executable, "-m", "probe_format", "run", "--level", "L0", "--dump_path", "dump", "x.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.stdout == "[None, None, None]\n"
    assert "Exception ignored" not in done.stderr and "no call of its model" not in done.stderr, done.stderr
    assert sorted(path.name for path in (tmp_path / "dump").glob("step*")) == ["step0", "step1", "step2"]
