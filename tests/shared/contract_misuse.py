"""Every misuse of the debugger gets one clear message, whatever the framework. The run goes on (see `still_trains`)."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import pytest
from documents import records, write_config
from framework import Framework
from messages import silent, told
from opening import capture, opened
from probe_format.errors import ConfigError, ProbeError, UsageError

LAYER = "a layer of the framework"  # stands for one in the tables below


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
def test_a_wrong_key_or_value(
    framework: Framework, keys: dict[str, Any], words: list[str], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        framework.debugger(str(write_config(tmp_path, **keys)))
    message = str(caught.value).lower()
    assert not [word for word in words if word.lower() not in message], message
    assert not (tmp_path / "dump").exists(), "nothing is written for a refused configuration"


def test_every_problem_at_once(framework: Framework, tmp_path: Path) -> None:
    path = write_config(tmp_path, level="L9", step=["3-1"], summary_mode="sha", colour="red")
    with pytest.raises(ConfigError) as caught:
        framework.debugger(str(path))
    assert len(caught.value.problems) == 4
    for word in ("L9", "3-1", "sha", "colour"):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", ["config.json", "line 1"]), ("[]", ["config.json"]), ('{"level": }', ["config.json", "line 1"])],
)
def test_a_file_that_is_not_a_configuration(
    framework: Framework, text: str, words: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ProbeError) as caught:
        framework.debugger(str(path))
    assert all(word in str(caught.value) for word in words), caught.value


def test_a_configuration_that_is_not_there(framework: Framework, tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match="nowhere"):
        framework.debugger(str(tmp_path / "nowhere.json"))


def test_arguments_are_checked_like_the_file(framework: Framework, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="L8"):
        framework.debugger(dump_path=str(tmp_path / "d"), level="L8")
    with pytest.raises(ConfigError, match="tensors"):
        framework.debugger(dump_path=str(tmp_path / "d"), task="tensors")
    with pytest.raises(ConfigError, match="5-2"):
        framework.debugger(dump_path=str(tmp_path / "d"), step=["5-2"])


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_no_model(framework: Framework, level: str, tmp_path: Path) -> None:
    with opened(framework.debugger, tmp_path, level=level) as debugger:
        with pytest.raises(UsageError, match="model"):
            debugger.start()
        framework.gelu()


def test_stop_without_start(framework: Framework, tmp_path: Path) -> None:
    with opened(framework.debugger, tmp_path, level="L1") as debugger:
        with told("stop", "start"):
            debugger.stop()
        debugger.start()
        framework.gelu()
        debugger.stop()
        debugger.step()
    assert list(records(tmp_path / "dump")) == ["Functional.gelu.0.forward"]


def test_step_without_stop(framework: Framework, tmp_path: Path) -> None:
    with opened(framework.debugger, tmp_path, level="L1") as debugger:
        debugger.start()
        framework.gelu()
        with told("step", "stop"):
            debugger.step()
        debugger.start()
        framework.functions.relu(framework.ones(2))
        debugger.stop()
        debugger.step()
    assert list(records(tmp_path / "dump", 0)) == ["Functional.gelu.0.forward"]
    assert list(records(tmp_path / "dump", 1)) == ["Functional.relu.0.forward"]


def test_class_calls_act_on_the_current_instance(framework: Framework, tmp_path: Path) -> None:
    with opened(framework.debugger, tmp_path, level="L1"):
        framework.debugger.start()
        framework.gelu()
        framework.debugger.stop()
        framework.debugger.step()
    assert list(records(tmp_path / "dump")) == ["Functional.gelu.0.forward"]


def test_a_closed_debugger(framework: Framework, tmp_path: Path) -> None:
    with opened(framework.debugger, tmp_path, level="L1") as debugger:
        pass
    with pytest.raises(UsageError, match="closed"):
        debugger.start()
    with silent():
        debugger.stop()  # of "without start()" nothing is said
    with pytest.raises(UsageError, match=r"The PrecisionDebugger of this process is closed\. Make another"):
        framework.debugger.stop()


def test_closing_needs_no_open_debugger(framework: Framework, tmp_path: Path) -> None:
    """``finally: PrecisionDebugger.close()`` hides no error, whether one was made, failed or is closed."""
    with pytest.raises(ConfigError):
        try:
            framework.debugger(dump_path=str(tmp_path), level="L7")
        finally:
            framework.debugger.close()
    with opened(framework.debugger, tmp_path, level="L1") as debugger:
        debugger.start()
    for _ in range(2):
        framework.debugger.close()
        debugger.close()


def test_set_init_step_inside_the_loop_or_with_nonsense(framework: Framework, tmp_path: Path) -> None:
    with opened(framework.debugger, tmp_path, level="L1") as debugger:
        with pytest.raises(UsageError, match="-3"):
            debugger.set_init_step(-3)
        debugger.start()
        with pytest.raises(UsageError, match="before the first start"):
            debugger.set_init_step(4)
        debugger.stop()
        debugger.step()


def test_token_range_without_a_model_and_backwards(framework: Framework, tmp_path: Path) -> None:
    with opened(framework.debugger, tmp_path, level="L1") as debugger:
        with pytest.raises(UsageError, match="token_range"):
            debugger.start(token_range=[0, 1])
        with pytest.raises(UsageError, match="3"):
            debugger.start(framework.layer(), token_range=[3, 1])


def test_save_at_another_level_is_told_once(framework: Framework, tmp_path: Path) -> None:
    x = framework.ones(2)
    with opened(framework.debugger, tmp_path, level="L1") as debugger, told("save", "debug"):
        assert debugger.save(x, "x") is x
        debugger.save(x, "x")


def test_rank_zero_in_a_single_process(framework: Framework, tmp_path: Path) -> None:
    """msprobe dumps nothing and says nothing."""
    with told("rank"):
        data = capture(framework.debugger, tmp_path, framework.gelu, level="L1", rank=[0])
    assert list(data) == ["Functional.gelu.0.forward"]


def test_a_rank_beyond_the_world(framework: Framework, tmp_path: Path) -> None:
    with told("rank", "7"), opened(framework.debugger, tmp_path, level="L1", rank=[7]) as debugger:
        debugger.start()
        framework.gelu()
        debugger.stop()
        debugger.step()
    assert not list((tmp_path / "dump").rglob("dump.json"))


def test_an_unwritable_dump_path(framework: Framework, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("mine")
    config = write_config(tmp_path, level="L1", dump=blocked / "dump")
    with pytest.raises(ProbeError, match=str(blocked)):
        framework.debugger(str(config))
    assert blocked.read_text() == "mine"


def test_a_dump_path_that_was_used(framework: Framework, tmp_path: Path) -> None:
    def files() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in (tmp_path / "dump").rglob("*") if path.is_file()}

    capture(framework.debugger, tmp_path, framework.gelu, level="L1", task="tensor")
    before = files()
    assert [path for path in before if path.suffix in (".pt", ".npy")]
    with pytest.raises(ProbeError, match="overwrite"):
        capture(framework.debugger, tmp_path, framework.gelu, level="L1", task="tensor")
    assert files() == before
    data = capture(
        framework.debugger,
        tmp_path,
        lambda: framework.functions.relu(framework.ones(3)),
        level="L1",
        overwrite=True,
    )
    assert list(data) == ["Functional.relu.0.forward"]
    stale = [path for path in files() if path.suffix in (".pt", ".npy")]
    assert not stale, "nothing stale is left in an overwritten dump"


def test_start_twice(framework: Framework, tmp_path: Path) -> None:
    with opened(framework.debugger, tmp_path, level="L1") as debugger:
        debugger.start()
        with told("start", "already"):
            debugger.start()
        framework.gelu()
        debugger.stop()
        debugger.step()
    assert list(records(tmp_path / "dump")) == ["Functional.gelu.0.forward"]


def test_two_debuggers(framework: Framework, tmp_path: Path) -> None:
    with opened(framework.debugger, tmp_path / "a", level="L1") as first:
        with told("debugger", str(tmp_path / "a").lower()):
            framework.debugger(dump_path=str(tmp_path / "b"), level="L1")
        same = framework.debugger(str(tmp_path / "a" / "config.json"))
        same.start()
        framework.gelu()
        first.stop()
        first.step()
    assert list(records(tmp_path / "a" / "dump")) == ["Functional.gelu.0.forward"]


def test_custom_apis_that_are_not_there(framework: Framework, tmp_path: Path) -> None:
    with opened(framework.debugger, tmp_path, level="L1") as debugger:
        with pytest.raises(UsageError, match="gelo"):
            debugger.register_custom_api(framework.functions, "gelo")
        with pytest.raises(UsageError, match="never"):
            debugger.restore_custom_api(framework.functions, "never_registered")


@pytest.mark.parametrize(
    ("owner", "more", "words"),
    [
        ("it", (3,), "name as a text"),
        ("it", ("",), "name as a text"),
        ("its name", ("gelu",), "the module itself"),
        ("it", ("gelu", 3), "prefix must be a text"),
        ("it", ("gelu", ""), "prefix must be a text"),
        ("it", ("geluu",), "did you mean"),
        (None, ("gelu",), "no such function"),
    ],
    ids=str,
)
def test_a_function_named_in_a_wrong_way(
    framework: Framework, owner: str | None, more: tuple[Any, ...], words: str, tmp_path: Path
) -> None:
    functions = framework.functions
    module = {"it": functions, "its name": functions.__name__, None: None}[owner]
    with opened(framework.debugger, tmp_path, level="L1") as debugger:
        with pytest.raises(UsageError, match=words):
            debugger.register_custom_api(module, *more)
        with pytest.raises(UsageError):
            debugger.restore_custom_api(module, more[0])


def test_every_setting_of_ours_is_a_keyword(framework: Framework, tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "overwrite": True, "rank": [0], "list": ["relu"], "data_mode": ["forward"], "summary_mode": "md5",
        "async_bytes": 1000, "max_faults": 3, "share": False, "views": True, "zero_count": True,
        "precision": "high", "extra_info": False, "risk_level": "CORE", "scope": [], "tensor_list": ["x"],
    }  # fmt: skip
    by_file = write_config(tmp_path, level="L1", dump=tmp_path / "d", **settings)
    settings |= {"dump_path": str(tmp_path / "d"), "level": "L1"}
    with framework.debugger(**settings):
        framework.debugger(str(by_file))  # the same settings are the same debugger
        for key, default in {**dict.fromkeys(settings), "precision": "low"}.items():
            if key not in ("level", "scope"):  # which has no other value that fits here
                with pytest.raises(UsageError, match=rf"differs \({key}: "):
                    framework.debugger(**{**settings, key: default})


def test_an_unknown_keyword_names_the_nearest(framework: Framework, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"(?s)overwite.*Did you mean 'overwrite'"):
        framework.debugger(dump_path=str(tmp_path), overwite=True)


def test_msprobes_positional_order_stays(framework: Framework, tmp_path: Path) -> None:
    path = str(write_config(tmp_path, level="L0"))
    arguments = (path, "tensor", str(tmp_path / "there"), "L1", *framework.msprobe_arguments, [3])
    with framework.debugger(*arguments):
        same = {"task": "tensor", "dump_path": str(tmp_path / "there"), "level": "L1", "step": [3]}
        framework.debugger(path, **same)
        for key, other in {
            "task": "statistics",
            "dump_path": str(tmp_path),
            "level": "mix",
            "step": [4],
        }.items():
            with pytest.raises(UsageError, match=f"{key}: "):
                framework.debugger(path, **{**same, key: other})


def test_a_second_run_with_overwrite(framework: Framework, tmp_path: Path) -> None:
    for _ in range(2):
        with framework.debugger(dump_path=str(tmp_path / "d"), level="L1", overwrite=True) as debugger:
            debugger.start()
            framework.gelu()
            debugger.stop()
            debugger.step()
    assert list(records(tmp_path / "d")) == ["Functional.gelu.0.forward"]


def test_what_a_run_with_overwrite_did_not_reach_is_told(framework: Framework, tmp_path: Path) -> None:
    """Its own earlier steps are, and those of ranks that it does not have, but not what this process has written."""
    dump = tmp_path / "d"

    def steps(*numbers: int) -> None:
        with framework.debugger(dump_path=str(dump), level="L1", overwrite=True) as debugger:
            for number in numbers:
                debugger.set_init_step(number)
                debugger.start()
                framework.gelu()
                debugger.stop()
                debugger.step()

    with silent():
        steps(0, 1, 2)
        steps(0)
    (dump / "step0/rank3").mkdir()
    (dump / "step0/rank3/dump.json").write_text("{}")
    for path in (dump / "step0/rank3", dump / "step1/rank", dump / "step2/rank"):
        os.utime(path, (1, 1))
    with told("d still has step0/rank3, step2/rank of an earlier dump", "did not reach"):
        steps(0, 1)


# ---------------- the wrong thing in the wrong place
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"config_path": LAYER}, ["path of a file", "start(model)"]),
        ({"config_path": {"task": "tensor"}}, ["path of a file", "dict"]),
        ({"config_path": 3}, ["path of a file", "int"]),
        ({"config_path": b"config.json"}, ["path of a file", "bytes"]),
        ({"config_path": "."}, ["is a directory", "dump_path"]),
        ({"config_path": ""}, ["not a path"]),
        ({"config_path": "a\0b.json"}, ["not a path"]),
        ({"dump_path": LAYER}, ["dump_path", "not a path"]),
        ({"model": "net"}, ["model must be", "str"]),
        ({"model": []}, ["model must be", "list of nothing"]),
        ({"step": LAYER}, ["step", "not a whole number"]),
        ({"level": LAYER}, ["level"]),
        ({"apis": "nowhere.yaml"}, ["apis", "no file"]),
    ],
    ids=str,
)
def test_the_wrong_thing_in_a_settings_place(
    framework: Framework, given: dict[str, Any], words: list[str], tmp_path: Path
) -> None:
    given = {key: framework.layer() if value is LAYER else value for key, value in given.items()}
    with pytest.raises(ProbeError) as caught:
        framework.debugger(**{"dump_path": str(tmp_path / "d"), **given})
    said = str(caught.value)
    assert not [word for word in words if word not in said], said
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_a_wrong_model_is_refused_at_every_level(framework: Framework, level: str, tmp_path: Path) -> None:
    with opened(framework.debugger, tmp_path, level=level) as debugger:
        for wrong in ("net", [], [framework.layer(), 3], framework.linear):
            with pytest.raises(UsageError, match="model must be"):
                debugger.start(wrong)
        for wrong_step in ("3", -1, 1.5, True, None):
            with pytest.raises(UsageError, match="set_init_step"):
                debugger.set_init_step(wrong_step)
        for wrong_range in (3, [1], ["a", "b"], [-1, 2], [2, 1]):
            with pytest.raises(UsageError, match="token_range"):
                debugger.start(framework.layer(), wrong_range)
    assert not list((tmp_path / "dump").glob("step*"))


def test_warnings_point_at_the_users_line(framework: Framework, tmp_path: Path) -> None:
    with opened(framework.debugger, tmp_path, level="L1", list=["nonesuch"]) as debugger:
        debugger.start()
        framework.gelu()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            debugger.start()
            debugger.save(1, "x")
            debugger.step()
            debugger.stop()
    with warnings.catch_warnings(record=True) as more:
        warnings.simplefilter("always")
        with framework.debugger(level="L1", dump_path=str(tmp_path / "e"), rank=[0]) as debugger:
            debugger.start()
            debugger.stop()
        framework.debugger(level="L1", dump_path=str(tmp_path / "f"), list=["nonesuch"]).start()
        framework.gelu()
        framework.debugger.current().close()
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


__all__ = [name for name in dir() if name.startswith("test_")]
