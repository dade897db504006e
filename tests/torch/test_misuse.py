"""Every misuse gets one clear message; the run goes on, and what was dumped before is as it was."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from dumping import capture, opened, records, report, write_config
from probe_format.errors import ConfigError, ProbeError, UsageError
from probe_torch import PrecisionDebugger
from torch import nn


def files(folder: Path) -> dict[Path, bytes]:
    return {p: p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def still_trains() -> None:
    """The user's torch is whole: functions are the originals and a step gives gradients."""
    assert "probe" not in str(getattr(F.linear, "__module__", "")).lower()
    assert not hasattr(F.linear, "__wrapped__")
    model = nn.Linear(2, 2)
    model(torch.ones(1, 2)).sum().backward()
    assert model.weight.grad is not None


@pytest.fixture(autouse=True)
def whole() -> Iterator[None]:
    yield
    still_trains()


# ---------------- an older torch: refused at import
_IMPORTS = """
import json, sys, torch
told = {}
for name in sys.argv[1:]:
    torch.__version__ = torch.torch_version.TorchVersion(name)
    try:
        import probe_torch
        told[name] = ""
    except ImportError as e:
        told[name] = str(e)
    for module in [m for m in sys.modules if m.startswith("probe_torch")]:
        del sys.modules[module]
print(json.dumps(told))
"""


def test_an_older_torch_is_refused_at_import_and_builds_of_a_newer_one_are_not() -> None:
    older = ["2.5.1", "1.13.1+cpu", "2.5.0a0+git1234"]
    newer = ["2.6.0", "2.6.0a0+ecf3bae40a.nv24.10", "2.7.1.post4", "3.0"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", _IMPORTS, *older, *newer]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    for name in older:
        assert told[name].startswith("probe_torch needs PyTorch 2.6 or newer") and name in told[name]
        assert "pip install 'torch>=2.6'" in told[name] and "probe_format" in told[name]
    assert [told[name] for name in newer] == [""] * len(newer)


# ---------------- wrong configuration: refused at construction
@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"level": "L7"}, ["level", "L7", "L0", "mix"]),
        ({"level": "l1"}, ["level", "l1", "did you mean", "L1"]),
        ({"task": "statistic"}, ["task", "statistic", "did you mean", "statistics"]),
        ({"step": "3-1"}, ["step", "3-1"]),
        ({"step": ["3-1"]}, ["step", "3-1"]),
        ({"step": [-1]}, ["step", "-1"]),
        ({"rank": ["b"]}, ["rank", "b"]),
        ({"summary_mode": "md6"}, ["summary_mode", "md6", "md5"]),
        ({"data_mode": ["forwards"]}, ["data_mode", "forwards", "forward"]),
        ({"scope": ["only one"]}, ["scope"]),
        ({"lst": ["relu"]}, ["lst", "did you mean", "list"]),
        ({"levle": "L1"}, ["levle", "did you mean", "level"]),
        ({"precision": "medium"}, ["precision", "medium", "high"]),
        ({"extra_info": "yes"}, ["extra_info", "yes"]),
    ],
    ids=str,
)
def test_a_wrong_key_or_value(keys: dict[str, Any], words: list[str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        PrecisionDebugger(str(write_config(tmp_path, **keys)))
    message = str(caught.value).lower()
    assert not [word for word in words if word.lower() not in message], message
    assert not (tmp_path / "dump").exists(), "nothing is written for a refused configuration"


def test_every_problem_at_once(tmp_path: Path) -> None:
    path = write_config(tmp_path, level="L9", step=["3-1"], summary_mode="sha", colour="red")
    with pytest.raises(ConfigError) as caught:
        PrecisionDebugger(str(path))
    assert len(caught.value.problems) == 4
    for word in ("L9", "3-1", "sha", "colour"):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", ["config.json", "line 1"]), ("[]", ["config.json"]), ('{"level": }', ["config.json", "line 1"])],
)
def test_a_file_that_is_not_a_configuration(text: str, words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ProbeError) as caught:
        PrecisionDebugger(str(path))
    assert all(word in str(caught.value) for word in words), caught.value


def test_a_configuration_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match="nowhere"):
        PrecisionDebugger(str(tmp_path / "nowhere.json"))


def test_arguments_are_checked_like_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="L8"):
        PrecisionDebugger(dump_path=str(tmp_path / "d"), level="L8")
    with pytest.raises(ConfigError, match="tensors"):
        PrecisionDebugger(dump_path=str(tmp_path / "d"), task="tensors")
    with pytest.raises(ConfigError, match="5-2"):
        PrecisionDebugger(dump_path=str(tmp_path / "d"), step=["5-2"])


# ---------------- wrong calls
@pytest.mark.parametrize("level", ["L0", "mix"])
def test_no_model(level: str, tmp_path: Path) -> None:
    with opened(tmp_path, level=level) as debugger:
        with pytest.raises(UsageError, match="model"):
            debugger.start()
        still_trains()


def test_a_model_that_is_none_of_ours(tmp_path: Path) -> None:
    with opened(tmp_path, level="L0") as debugger, pytest.raises(UsageError, match="str"):
        debugger.start("model")  # type: ignore[arg-type]


@contextmanager
def told(*words: str) -> Iterator[None]:
    """The block must end in one UsageError, or one warning, that has all the words."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        except UsageError as error:
            said = [str(error)]
        else:
            said = [str(w.message) for w in caught]
    fitting = [text for text in said if all(word in text.lower() for word in words)]
    assert len(fitting) == 1, f"said {said}, which should be one message with {words}"


def test_start_twice(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    with opened(tmp_path) as debugger:
        debugger.start(model)
        with told("start", "already"):
            debugger.start(model)
        model(torch.ones(1, 2))
        debugger.stop()
        debugger.step()
    names = records(tmp_path / "dump")
    assert "Functional.linear.0.forward" in names and "Functional.linear.1.forward" not in names


def test_stop_without_start(tmp_path: Path) -> None:
    with opened(tmp_path, level="L1") as debugger:
        with told("stop", "start"):
            debugger.stop()
        debugger.start()
        F.gelu(torch.ones(2))
        debugger.stop()
        debugger.step()
    assert list(records(tmp_path / "dump")) == ["Functional.gelu.0.forward"]


def test_step_without_stop(tmp_path: Path) -> None:
    with opened(tmp_path, level="L1") as debugger:
        debugger.start()
        F.gelu(torch.ones(2))
        with told("step", "stop"):
            debugger.step()
        debugger.start()
        F.relu(torch.ones(2))
        debugger.stop()
        debugger.step()
    assert list(records(tmp_path / "dump", 0)) == ["Functional.gelu.0.forward"]
    assert list(records(tmp_path / "dump", 1)) == ["Functional.relu.0.forward"]


def test_class_calls_with_no_instance() -> None:
    code = "from probe_torch import PrecisionDebugger\nPrecisionDebugger.start()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment())
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "PrecisionDebugger(" in last, last


def test_class_calls_act_on_the_current_instance(tmp_path: Path) -> None:
    with opened(tmp_path, level="L1"):
        PrecisionDebugger.start()  # type: ignore[call-arg]
        F.gelu(torch.ones(2))
        PrecisionDebugger.stop()  # type: ignore[call-arg]
        PrecisionDebugger.step()  # type: ignore[call-arg]
    assert list(records(tmp_path / "dump")) == ["Functional.gelu.0.forward"]


def test_two_debuggers(tmp_path: Path) -> None:
    with opened(tmp_path / "a", level="L1") as first:
        with told("debugger", str(tmp_path / "a").lower()):
            PrecisionDebugger(dump_path=str(tmp_path / "b"), level="L1")
        first.start()
        F.gelu(torch.ones(2))
        first.stop()
        first.step()
    assert list(records(tmp_path / "a" / "dump")) == ["Functional.gelu.0.forward"]


def test_rank_zero_in_a_single_process(tmp_path: Path) -> None:
    """msprobe dumps nothing and says nothing."""
    with told("rank"):
        capture(tmp_path, lambda: F.gelu(torch.ones(2)), level="L1", rank=[0])
    assert list(records(tmp_path / "dump")) == ["Functional.gelu.0.forward"]


def test_a_rank_beyond_the_world(tmp_path: Path) -> None:
    with told("rank", "7"), opened(tmp_path, level="L1", rank=[7]) as debugger:
        debugger.start()
        F.gelu(torch.ones(2))
        debugger.stop()
        debugger.step()
    assert not list((tmp_path / "dump").rglob("dump.json"))


# ---------------- the place to dump to
def test_an_unwritable_dump_path(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("mine")
    config = write_config(tmp_path, level="L1", dump=blocked / "dump")
    with pytest.raises(ProbeError, match=str(blocked)), PrecisionDebugger(str(config)) as debugger:
        debugger.start()
    assert blocked.read_text() == "mine"


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OMP_NUM_THREADS": "1"}


READ_ONLY = """
import os, sys, torch
from probe_torch import PrecisionDebugger
os.setgid(65534); os.setuid(65534)
try:
    d = PrecisionDebugger(dump_path=sys.argv[1] + "/dump", level="L1", task="statistics")
    d.start(); torch.ones(2).sin(); d.stop(); d.step()
except Exception as e:
    print(type(e).__name__, e)
print(torch.ones(2).sum().item())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_a_directory_of_someone_else(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", READ_ONLY, str(tmp_path)], capture_output=True, text=True, env=environment()
    )
    if "Permission denied: '/" in done.stderr and "import" in done.stderr:
        pytest.skip("the other user cannot read this environment")
    said = done.stdout.splitlines()[0]
    assert said.startswith(("ConfigError", "UsageError")) and str(tmp_path) in done.stdout, done
    assert done.stdout.strip().endswith("2.0")


FULL = """
import json, resource, sys
import torch
from probe_torch import PrecisionDebugger

def run(limit, task, dump):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    debugger = PrecisionDebugger(dump_path=dump, level="mix", task=task) if dump else None
    losses = []
    for i in range(3):
        if debugger: debugger.start(model)
        if limit and i == 1:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        optimizer.zero_grad()
        loss = model(torch.ones(64, 64)).square().mean()
        loss.backward()
        optimizer.step()
        if debugger:
            debugger.stop(); debugger.step()
        losses.append(loss.item())
    return losses

limit, task, dump = int(sys.argv[1]), sys.argv[2], sys.argv[3]
print(json.dumps(run(limit, task, dump)))
"""


def limited(size: int, task: str, dump: str) -> tuple[list[float], str]:
    """The losses of a run whose files may not grow beyond `size` from its second step on, and its words."""
    command = [sys.executable, "-c", FULL, str(size), task, dump]
    done = subprocess.run(command, capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1]), done.stderr


@cache
def unlimited() -> list[float]:
    return limited(0, "", "")[0]


@pytest.mark.parametrize(("limit", "task"), [(16, "statistics"), (4096, "statistics"), (4096, "tensor")])
def test_a_disk_that_fills_up(limit: int, task: str, tmp_path: Path) -> None:
    """A limit on file size stands for the full disk: writes fail half-way from the second step on."""
    watched, said = limited(limit, task, str(tmp_path / "dump"))
    assert watched == unlimited(), "the user's run is what it was"
    lines = [line for line in said.splitlines() if "probe" in line.lower()]
    assert [line for line in lines if any(w in line for w in ("space", "large", "full", "write"))], said
    assert len(lines) < 12, "one clear message, not one for each call"
    names = records(tmp_path / "dump", 0)
    assert "Module.0.Linear.forward.0" in names, "the step before is whole"
    assert report(tmp_path / "dump", 0)["state"] == "complete"


def test_a_dump_path_that_was_used(tmp_path: Path) -> None:
    def work() -> None:
        F.gelu(torch.ones(3))

    capture(tmp_path, work, level="L1", task="tensor")
    before = files(tmp_path / "dump")
    with pytest.raises(ProbeError, match="overwrite"):
        capture(tmp_path, work, level="L1", task="tensor")
    assert files(tmp_path / "dump") == before
    capture(tmp_path, lambda: F.relu(torch.ones(3)), level="L1", overwrite=True)
    assert list(records(tmp_path / "dump")) == ["Functional.relu.0.forward"]
    assert not list((tmp_path / "dump").rglob("*.pt")), "nothing stale is left in an overwritten dump"


def test_a_torn_dump_is_not_overwritten(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys, torch\nfrom probe_torch import PrecisionDebugger\n"
        "d = PrecisionDebugger(sys.argv[1]); d.start(); torch.ones(2).sin(); os.kill(os.getpid(), 9)"
    )
    config = write_config(tmp_path, level="L1")
    done = subprocess.run([sys.executable, "-c", code, str(config)], env=environment())
    assert done.returncode == -signal.SIGKILL
    before = files(tmp_path / "dump")
    assert before
    with pytest.raises(ProbeError), PrecisionDebugger(str(config)) as debugger:
        debugger.start()
    assert files(tmp_path / "dump") == before


def test_the_limit_used_above_works(tmp_path: Path) -> None:
    """RLIMIT_FSIZE gives OSError in this Python, as a full disk does."""
    code = (
        "import resource, sys\nresource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))\n"
        "try: open(sys.argv[1], 'wb', buffering=0).write(b'x' * 10) and "
        "open(sys.argv[1], 'ab', buffering=0).write(b'x' * 90) < 90 and print('short')\n"
        "except OSError as e: print(e.errno)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "f")], capture_output=True, text=True)
    assert done.stdout.strip() in ("short", "27"), done
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 16


# ---------------- custom functions and module_dump
def test_custom_apis_that_are_not_there(tmp_path: Path) -> None:
    with opened(tmp_path, level="L1") as debugger:
        with pytest.raises(UsageError, match="gelo"):
            debugger.register_custom_api(F, "gelo")
        with pytest.raises(UsageError, match="gelu"):
            debugger.restore_custom_api(F, "gelu_never_registered")


def test_module_dump_end_without_begin(tmp_path: Path) -> None:
    with opened(tmp_path) as debugger, pytest.raises(UsageError, match="module_dump"):
        debugger.module_dump_end()


# ---------------- settings as keywords
def test_every_setting_of_ours_is_a_keyword(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "overwrite": True, "rank": [0], "list": ["relu"], "data_mode": ["forward"], "summary_mode": "md5",
        "async_bytes": 1000, "max_faults": 3, "share": False, "views": True, "zero_count": True,
        "precision": "high", "extra_info": False, "risk_level": "CORE", "scope": [], "tensor_list": ["x"],
    }  # fmt: skip
    with PrecisionDebugger(dump_path=str(tmp_path / "d"), level="L1", **settings) as debugger:
        config = debugger._session.config
    assert {key: getattr(config, key) for key in settings} == {
        **settings,
        "rank": (0,),
        "list": ("relu",),
        "scope": (),
        "tensor_list": ("x",),
        "data_mode": frozenset({"forward"}),
    }


def test_an_unknown_keyword_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"(?s)overwite.*Did you mean 'overwrite'"):
        PrecisionDebugger(dump_path=str(tmp_path), overwite=True)


def test_msprobes_positional_order_stays(tmp_path: Path) -> None:
    path = str(write_config(tmp_path, level="L0"))
    with PrecisionDebugger(path, "tensor", str(tmp_path / "there"), "L1", None, [3]) as debugger:
        config = debugger._session.config
    assert (config.task, config.dump_path, config.level, config.step) == (
        "tensor", tmp_path / "there", "L1", (3,)
    )  # fmt: skip


def test_a_second_run_with_overwrite(tmp_path: Path) -> None:
    for _ in range(2):
        with PrecisionDebugger(dump_path=str(tmp_path / "d"), level="L1", overwrite=True) as debugger:
            debugger.start()
            F.gelu(torch.ones(2))
            debugger.stop()
            debugger.step()
    assert list(records(tmp_path / "d")) == ["Functional.gelu.0.forward"]


# ---------------- the wrong thing in the wrong place
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"config_path": nn.Linear(2, 2)}, ["path of a file", "start(model)"]),
        ({"config_path": {"task": "tensor"}}, ["path of a file", "dict"]),
        ({"config_path": 3}, ["path of a file", "int"]),
        ({"config_path": b"config.json"}, ["path of a file", "bytes"]),
        ({"config_path": "."}, ["is a directory", "dump_path"]),
        ({"config_path": ""}, ["no path"]),
        ({"config_path": "a\0b.json"}, ["no path"]),
        ({"dump_path": nn.Linear(2, 2)}, ["dump_path", "not a path"]),
        ({"dump_path": ""}, ["dump_path", "empty"]),
        ({"dump_path": __file__}, ["dump_path", "is a file"]),
        ({"model": "net"}, ["model must be", "str"]),
        ({"model": []}, ["model must be", "list of nothing"]),
        ({"step": -1}, ["step", "negative"]),
        ({"step": nn.Linear(2, 2)}, ["step", "not a whole number"]),
        ({"task": 3}, ["task", "int"]),
        ({"level": nn.Linear(2, 2)}, ["level"]),
        ({"overwrite": "yes"}, ["overwrite", "bool"]),
        ({"max_faults": -3}, ["max_faults", "not above 0"]),
        ({"list": 5}, ["list", "list of strings"]),
        ({"apis": "nowhere.yaml"}, ["apis", "no file"]),
    ],
    ids=str,
)
def test_the_wrong_thing_in_a_settings_place(given: dict[str, Any], words: list[str], tmp_path: Path) -> None:
    with pytest.raises(ProbeError) as caught:
        PrecisionDebugger(**{"dump_path": str(tmp_path / "d"), **given})
    said = str(caught.value)
    assert not [word for word in words if word not in said], said
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_a_wrong_model_is_refused_at_every_level(level: str, tmp_path: Path) -> None:
    with opened(tmp_path, level=level) as debugger:
        for wrong in ("net", [], [nn.Linear(2, 2), 3], nn.Linear):
            with pytest.raises(UsageError, match="model must be"):
                debugger.start(wrong)
        for wrong_step in ("3", -1, 1.5, True, None):
            with pytest.raises(UsageError, match="set_init_step"):
                debugger.set_init_step(wrong_step)
        for wrong_range in (3, [1], ["a", "b"], [-1, 2], [2, 1]):
            with pytest.raises(UsageError, match="token_range"):
                debugger.start(nn.Linear(2, 2), wrong_range)
    assert not list((tmp_path / "dump").glob("step*"))


def test_warnings_point_at_the_users_line(tmp_path: Path) -> None:
    with opened(tmp_path, level="L1", list=["nonesuch"]) as debugger:
        debugger.start()
        F.gelu(torch.ones(2))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            debugger.start()
            debugger.save(1, "x")
            debugger.step()
            debugger.stop()
    with warnings.catch_warnings(record=True) as more:
        warnings.simplefilter("always")
        with PrecisionDebugger(level="L1", dump_path=str(tmp_path / "e"), rank=[0]) as debugger:
            debugger.start()
            debugger.stop()
        PrecisionDebugger(level="L1", dump_path=str(tmp_path / "f"), list=["nonesuch"]).start()
        F.gelu(torch.ones(2))
        PrecisionDebugger.current().close()
    said = [str(w.message) for w in (*caught, *more)]
    for word in (
        "twice",
        "save()",
        "before stop()",
        "without start()",
        "matched nothing",
        "no process group",
    ):
        assert [text for text in said if word in text], (word, said)
    assert {w.filename for w in (*caught, *more)} == {__file__}, [(w.filename, w.lineno) for w in caught]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((torch, 3), "name as a text"),
        ((torch, ""), "name as a text"),
        (("torch", "matmul"), "the module itself"),
        ((torch, "matmul", 3), "prefix must be a text"),
        ((torch, "matmul", ""), "prefix must be a text"),
        ((torch, "matmull"), "did you mean"),
        ((None, "matmul"), "no such function"),
    ],
    ids=str,
)
def test_a_function_named_in_a_wrong_way(arguments: tuple[Any, ...], words: str, tmp_path: Path) -> None:
    with opened(tmp_path, level="L1") as debugger:
        with pytest.raises(UsageError, match=words):
            debugger.register_custom_api(*arguments)
        with pytest.raises(UsageError):
            debugger.restore_custom_api(*arguments[:2])
