"""What a plan says, and when it cannot be made. That it is what the dump writes, each framework's own tests say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from framework import Framework
from probe_format.errors import ConfigError, UsageError
from probe_runtime.config import resolve

__all__ = ["keys", "net", "x"]


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, Any]:
    return {"level": "mix", "dump_path": str(tmp_path / "d")}


@pytest.fixture
def net(framework: Framework) -> Any:
    return framework.sequence(framework.linear(4, 4))


@pytest.fixture
def x(framework: Framework) -> Any:
    return framework.ones(2, 4)


def test_a_loss_of_the_users_own_is_recorded(framework: Framework, keys: Any, net: Any, x: Any) -> None:
    keys["level"] = "L1"
    without = framework.plan(net, keys, x)
    with_loss = framework.plan(net, keys, x, loss=lambda out: out.square().mean())
    assert with_loss.records == without.records + 4, "two functions, forward and backward"


def test_a_filter_without_a_match_is_told(framework: Framework, keys: Any, net: Any, x: Any) -> None:
    wrong = f"{framework.linear.__name__[:-1]}xr"
    planned = framework.plan(net, {**keys, "list": [wrong]}, x)
    ((which, entry, near),) = planned.unmatched
    assert (which, entry, planned.records) == ("list", wrong, 0) and near
    assert f"'{wrong}' matches nothing" in str(planned)


def test_steps_and_ranks_are_counted(framework: Framework, keys: Any, net: Any, x: Any) -> None:
    planned = framework.plan(net, {**keys, "step": ["0-99"], "rank": [0, 1]}, x)
    assert planned.total == 200 * planned.allocated and not planned.problems


def test_packs_take_no_blocks_for_each_tensor(framework: Framework, keys: Any, net: Any, x: Any) -> None:
    one, packed = (
        framework.plan(net, {**keys, "task": "tensor", "tensor_files": n}, x) for n in ("one", "packed")
    )
    assert (packed.files, packed.file_bytes) == (one.files, one.file_bytes)
    assert packed.file_bytes < packed.allocated < one.allocated - 2048 * one.written


def test_an_earlier_dump_is_told(framework: Framework, keys: Any, net: Any, x: Any, tmp_path: Path) -> None:
    (tmp_path / "d" / "step5" / "rank").mkdir(parents=True)
    (tmp_path / "d" / "step5" / "rank" / "dump.json").write_text("{}")
    assert "already holds a dump" in framework.plan(net, keys, x).problems[0]
    assert not framework.plan(net, {**keys, "overwrite": True}, x).problems


def test_what_cannot_be_planned_is_said(framework: Framework, keys: Any, net: Any, x: Any) -> None:
    with pytest.raises(UsageError, match=r"must be a .*; got a list"):
        framework.plan([net], keys, x)
    with pytest.raises(UsageError, match="configuration's is debug"):
        framework.plan(net, {**keys, "level": "debug"}, x)
    with pytest.raises(ConfigError, match="levle"):
        framework.plan(net, {**keys, "levle": "mix"}, x)


def test_what_an_error_of_the_model_leaves(framework: Framework, keys: Any, net: Any, x: Any) -> None:
    def fails(self: Any, x: Any) -> Any:
        raise ValueError("no such thing")

    function, call = framework.functions.relu, framework.module.__call__
    with pytest.raises(ValueError, match="no such thing") as error:
        framework.plan(framework.sequence(net, framework.module_of("Fails", fails)), keys, x)
    assert "plan" in "".join(error.value.__notes__)
    assert framework.functions.relu is function and framework.module.__call__ is call


def test_not_while_a_dump_is_made(framework: Framework, keys: Any, net: Any, x: Any, tmp_path: Path) -> None:
    with framework.debugger(level="mix", dump_path=str(tmp_path / "e")) as debugger:
        debugger.start(net)
        with pytest.raises(UsageError, match="Plan before start"):
            framework.plan(net, resolve(keys), x)
        debugger.stop()
        assert framework.plan(net, resolve(keys), x).records
        assert debugger.current() is not None


def test_what_keep_leaves_is_what_the_disk_holds(framework: Framework, keys: Any, net: Any, x: Any) -> None:
    keys["keep"] = {"last": 3}
    found = [framework.plan(net, keys, x), framework.plan(net, {**keys, "step": "0-1"}, x)]
    assert [each.steps for each in found] == [4, 2]


def test_what_triggers_add_is_planned_or_said(framework: Framework, keys: Any, net: Any, x: Any) -> None:
    """Each trigger keeps as many steps as `keep` has, once more; those of `then` are in no size, which is said."""
    keys |= {"level": "L0", "keep": {"last": 3}, "when": ["non_finite"]}
    keys["then"] = {"task": "tensor", "steps": 2, "times": 4}
    planned = framework.plan(net, keys, x)
    assert planned.steps == 4 + 3 * 4
    assert any(
        note.startswith("then: up to 8 steps more, at level L0, task tensor") for note in planned.notes
    )


__all__ += [name for name in dir() if name.startswith("test_")]
