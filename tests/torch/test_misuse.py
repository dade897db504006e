"""Every misuse gets one clear message; the run goes on, and what was dumped before is as it was."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from contract_misuse import *  # noqa: F403  the tests that both frameworks have
from dumping import opened, records, report
from launching import BARE, FORKS
from probe_format.errors import UsageError
from torch import nn


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
    told = json.loads(BARE.run("-c", _IMPORTS, *older, *newer).stdout)
    for name in older:
        assert told[name].startswith("probe_torch needs PyTorch 2.6 or newer") and name in told[name]
        assert "pip install 'torch>=2.6'" in told[name] and "probe_format" in told[name]
    assert [told[name] for name in newer] == [""] * len(newer)


# ---------------- wrong calls
def test_class_calls_with_no_instance() -> None:
    code = "from probe_torch import PrecisionDebugger\nPrecisionDebugger.start()"
    done = FORKS.run("-c", code, ends=1)
    last = done.stderr.strip().splitlines()[-1]
    assert "PrecisionDebugger(" in last, last


# ---------------- the place to dump to
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
    done = FORKS.run("-c", READ_ONLY, str(tmp_path))
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
    pipes = [os.pipe() for _ in range(2)]  # the limit is for files alone
    with open(os.devnull) as none:
        run = FORKS.start(
            "-c", FULL, str(size), task, dump, stdin=none.fileno(), stdout=pipes[0][1], stderr=pipes[1][1]
        )
    told = []
    for end, other in pipes:
        os.close(other)
        with open(end) as pipe:
            told.append(pipe.read())
    assert run.wait() == 0, told
    return json.loads(told[0].splitlines()[-1]), told[1]


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


# ---------------- custom functions and module_dump
def test_module_dump_end_without_begin(tmp_path: Path) -> None:
    with opened(tmp_path) as debugger, pytest.raises(UsageError, match="module_dump"):
        debugger.module_dump_end()
