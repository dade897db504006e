"""The JSON of Ascend's own interface."""

from __future__ import annotations

from typing import Any

import pytest
from probe_format.errors import ConfigError
from probe_kernel import AclDump, AclModel, acl_settings


def test_single_operators_as_msprobe_writes_them() -> None:
    assert acl_settings(AclDump(path="/d/step0")) == {
        "dump": {"dump_list": [], "dump_path": "/d/step0", "dump_mode": "all", "dump_op_switch": "on"}
    }


def test_models_layers_steps_and_statistics() -> None:
    dump = AclDump(
        path="/d",
        models=[AclModel("ResNet-101"), AclModel("ResNet-50", ["conv1", "pool1"]), AclModel()],
        mode="output",
        level="op",
        step=[0, range(3, 6), 10],
        data="stats",
        stats=["Max", "L2norm"],
        op_switch=False,
    )
    assert acl_settings(dump)["dump"] == {
        "dump_list": [
            {"model_name": "ResNet-101"},
            {"model_name": "ResNet-50", "layer": ["conv1", "pool1"]},
            {},
        ],
        "dump_path": "/d",
        "dump_mode": "output",
        "dump_level": "op",
        "dump_op_switch": "off",
        "dump_step": "0|3-5|10",
        "dump_data": "stats",
        "dump_stats": ["Max", "L2norm"],
    }


def test_overflow_and_exception_stand_alone() -> None:
    assert acl_settings(AclDump(path="/d", debug=True)) == {"dump": {"dump_path": "/d", "dump_debug": "on"}}
    assert acl_settings(AclDump(scene="lite_exception")) == {"dump": {"dump_scene": "lite_exception"}}


@pytest.mark.parametrize(
    ("options", "wheres"),
    [
        ({"path": None}, {"path"}),
        ({"path": ""}, {"path"}),
        ({"mode": "inputs"}, {"mode"}),
        ({"level": "x"}, {"level"}),
        ({"data": "statistics"}, {"data"}),
        ({"scene": "watcher"}, {"scene"}),
        ({"step": "3-1"}, {"step"}),
        ({"stats": ["Max"]}, {"stats"}),
        ({"data": "stats", "stats": ["mean"]}, {"stats[0]"}),
        ({"data": "stats", "stats": []}, {"stats"}),
        ({"debug": True, "scene": "lite_exception"}, {"scene"}),
        ({"debug": True, "models": [AclModel()], "mode": "input", "step": 3}, {"models", "mode", "step"}),
        ({"scene": "lite_exception", "data": "stats"}, {"data"}),
        ({"models": [AclModel("a"), AclModel("a")]}, {"models[1]"}),
        ({"models": ["a"]}, {"models[0]"}),
        ({"models": [AclModel("a", 3)]}, {"models[0].layers"}),  # type: ignore[arg-type]
        ({"op_switch": "on"}, {"op_switch"}),
        ({"mode": "x", "step": "y", "stats": ["z"], "data": "stats"}, {"mode", "step", "stats[0]"}),
    ],
)
def test_what_is_refused(options: dict[str, Any], wheres: set[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        acl_settings(AclDump(**{"path": "/d", **options}))
    assert {p.where for p in caught.value.problems} == wheres
    assert all(p.remedy for p in caught.value.problems)
