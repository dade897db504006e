"""The control file of each backend, key by key; and each rule broken once, with what to write instead."""

from __future__ import annotations

import json
from typing import Any

import pytest
from probe_format.errors import ConfigError
from probe_kernel import BACKENDS, KernelDump, settings
from probe_kernel.control.control_file import settings_text
from probe_kernel.control.option_rules import NOTES, RULES

DOCUMENT = {"iterations": "0|5-8|100-120", "kernels": ["Default/Conv-op12"], "net_name": "ResNet50"}
COMMON = {
    "path": "/absolute_path", "net_name": "ResNet50", "iteration": "0|5-8|100-120", "input_output": 0,
    "kernels": ["Default/Conv-op12"], "support_device": [0, 1, 2, 3, 4, 5, 6, 7],
}  # fmt: skip
DATA = {"op_debug_mode": 0, "saved_data": "tensor", "statistic_category": ["max", "min", "l2norm"]}
# The documents say dump_mode 0 beside a list of kernels, which then has no effect: a list means mode 1.
ONE = {"dump_mode": 1}


def made(backend: str, **options: Any) -> dict[str, Any]:
    return settings(KernelDump(path="/absolute_path", **options), backend, {})


def refused(backend: str, **options: Any) -> list[tuple[str, str]]:
    options = {"path": "/absolute_path", **options}
    with pytest.raises(ConfigError) as caught:
        settings(KernelDump(**options), backend, {})
    assert all(p.what and p.remedy for p in caught.value.problems)
    return [(p.where, p.remedy) for p in caught.value.problems]


@pytest.mark.parametrize(
    ("backend", "options", "common", "e2e"),
    [
        ("ascend-o0o1", {"stat_calc_mode": "host"}, {**COMMON, **DATA, **ONE},
         {"enable": True, "trans_flag": True, "stat_calc_mode": "host"}),
        ("ascend-o2", {"file_format": "npy"}, {**COMMON, **DATA, **ONE, "file_format": "npy"}, None),
        ("cpu", {}, {**COMMON, **DATA, **ONE}, {"enable": True, "trans_flag": True}),
        ("gpu", {"trans_flag": True}, {**COMMON, **DATA, **ONE}, {"enable": True, "trans_flag": True}),
        ("ge", {}, {**COMMON, **DATA, **ONE, "file_format": "bin"}, None),
        ("r1.5-sync", {}, {**COMMON, **ONE}, {"enable": True, "trans_flag": True}),
        ("r1.5-async", {}, {**COMMON, **ONE, "op_debug_mode": 0}, None),
    ],
)  # fmt: skip
def test_the_files_of_the_documents(backend: str, options: Any, common: Any, e2e: Any) -> None:
    document = made(backend, **DOCUMENT, **options)
    assert document.pop("common_dump_settings") == common
    assert document.pop("e2e_dump_settings", None) == e2e
    assert not document


def test_every_backend_is_tested_above() -> None:
    assert set(BACKENDS) == {"ascend-o0o1", "ascend-o2", "cpu", "gpu", "ge", "r1.5-sync", "r1.5-async"}


@pytest.mark.parametrize(
    ("backend", "options", "section", "key", "value"),
    [
        ("cpu", {}, "common", "dump_mode", 0),
        ("cpu", {"kernels": "conv"}, "common", "kernels", ["conv"]),
        ("cpu", {"inputs": False}, "common", "input_output", 2),
        ("cpu", {"outputs": False}, "common", "input_output", 1),
        ("cpu", {"iterations": [0, range(5, 9)]}, "common", "iteration", "0|5-8"),
        ("gpu", {"saved_data": "full", "statistic_category": ["md5", "nan count"]}, "common",
         "statistic_category", ["md5", "nan count"]),
        ("ascend-o0o1", {"set_dump": True}, "common", "dump_mode", 2),
        ("ascend-o0o1", {"op_debug_mode": 3, "overflow_number": 7}, "common", "overflow_number", 7),
        ("ascend-o0o1", {"op_debug_mode": 4, "outputs": False}, "common", "input_output", 1),
        ("ascend-o0o1", {"devices": [1, 2]}, "common", "support_device", [1, 2]),
        ("ascend-o0o1", {"synchronous": False}, "e2e", "enable", False),
        ("ascend-o0o1", {"trans_flag": False}, "e2e", "trans_flag", False),
        ("ascend-o0o1", {"sample_mode": 1, "sample_num": 9}, "e2e", "sample_num", 9),
        ("ascend-o0o1", {"save_kernel_args": True}, "e2e", "save_kernel_args", True),
        ("ascend-o0o1", {"saved_data": "statistic", "stat_calc_mode": "device",
                         "device_stat_precision_mode": "low"}, "e2e", "device_stat_precision_mode", "low"),
        ("ascend-o2", {"op_debug_mode": 3, "file_format": "npy", "overflow_number": 2}, "common",
         "overflow_number", 2),
        ("r1.5-async", {"op_debug_mode": 2}, "common", "op_debug_mode", 2),
    ],
)  # fmt: skip
def test_an_option_reaches_its_key(backend: str, options: Any, section: str, key: str, value: Any) -> None:
    assert made(backend, **options)[f"{section}_dump_settings"][key] == value


def test_overflow_number_is_left_out_where_it_is_refused() -> None:
    """MindSpore raises for the key alone unless op_debug_mode is 3."""
    assert "overflow_number" not in made("ascend-o0o1")["common_dump_settings"]


def test_the_path_may_come_from_the_environment() -> None:
    dump = KernelDump()
    document = settings(dump, "cpu", {"MS_DIAGNOSTIC_DATA_PATH": "/data"})
    assert document["common_dump_settings"]["path"] == ""
    with pytest.raises(ConfigError, match="MS_DIAGNOSTIC_DATA_PATH is not set"):
        settings(dump, "cpu", {})
    with pytest.raises(ConfigError, match=r"MS_DIAGNOSTIC_DATA_PATH: '/da[.]ta/debug_dump' has '[.]'"):
        settings(dump, "cpu", {"MS_DIAGNOSTIC_DATA_PATH": "/da.ta"})


# rule or check -> (backend, options, the option that is blamed, a part of the remedy)
BROKEN = [
    ("unknown_options", "cpu", {"file_format": "bin"}, "file_format", "Leave it out"),
    ("unknown_options", "cpu", {"sample_mode": 1}, "sample_mode", "Leave it out"),
    ("unknown_options", "ascend-o2", {"save_kernel_args": True}, "save_kernel_args", "Leave it out"),
    ("unknown_options", "ascend-o2", {"stat_calc_mode": "device"}, "stat_calc_mode", "Leave it out"),
    ("unknown_options", "ascend-o2", {"sample_mode": 1}, "sample_mode", "Leave it out"),
    ("unknown_options", "ge", {"trans_flag": False}, "trans_flag", "Leave it out"),
    ("unknown_options", "r1.5-sync", {"saved_data": "statistic"}, "saved_data", "Leave it out"),
    ("unknown_options", "r1.5-async", {"trans_flag": True}, "trans_flag", "Leave it out"),
    ("kinds_of_kernels", "cpu", {"kernels": ["Default/d-Dense"]}, "kernels", "name-regex(Default/d-Dense/.+)"),
    ("kinds_of_kernels", "ascend-o2", {"kernels": ["conv"]}, "kernels", "name-regex(.*conv.*)"),
    ("kinds_of_kernels", "ge", {"kernels": ["conv"]}, "kernels", "name-regex(.*conv.*)"),
    ("kinds_of_kernels", "r1.5-sync", {"kernels": ["conv"]}, "kernels", "Conv2D-op12"),
    ("kinds_of_kernels", "r1.5-async", {"kernels": ["name-regex(.*)"]}, "kernels", "Conv2D-op12"),
    ("statistics_of_saved", "cpu", {"saved_data": "statistic"}, "saved_data", '"tensor"'),
    ("statistics_of_saved", "cpu", {"saved_data": "full"}, "saved_data", '"tensor"'),
    ("statistics_need_npy", "ascend-o2", {"saved_data": "statistic", "file_format": "bin"}, "file_format", '"npy"'),
    ("statistics_need_npy", "ge", {"saved_data": "full"}, "file_format", '"npy"'),
    ("statistics_need_data", "ascend-o0o1", {"saved_data": "full", "op_debug_mode": 3}, "saved_data", '"tensor"'),
    ("device_statistics", "ascend-o0o1", {"saved_data": "full", "stat_calc_mode": "device"}, "stat_calc_mode", "host"),
    ("device_statistics", "ascend-o0o1", {"saved_data": "statistic", "stat_calc_mode": "device",
                                          "statistic_category": ["max", "md5"]}, "statistic_category", "host"),
    ("device_statistics", "ascend-o0o1", {"device_stat_precision_mode": "low"}, "device_stat_precision_mode",
     "Leave it out"),
    ("debug_modes", "cpu", {"op_debug_mode": 3}, "op_debug_mode", "Write 0"),
    ("debug_modes", "gpu", {"op_debug_mode": 4, "outputs": False}, "op_debug_mode", "Write 0"),
    ("debug_modes", "ge", {"op_debug_mode": 4, "outputs": False}, "op_debug_mode", "Write 0 or 3"),
    ("debug_modes", "ascend-o0o1", {"op_debug_mode": 1}, "op_debug_mode", "0 or 3 or 4"),
    ("debug_directions", "ascend-o0o1", {"op_debug_mode": 3, "outputs": False}, "outputs", "outputs=False"),
    ("debug_directions", "ascend-o2", {"op_debug_mode": 3, "inputs": False}, "inputs", "inputs=False"),
    ("debug_directions", "ascend-o0o1", {"op_debug_mode": 4, "inputs": False}, "inputs", "inputs=True"),
    ("debug_selection", "ascend-o0o1", {"op_debug_mode": 3, "kernels": ["conv"]}, "kernels", "op_debug_mode=0"),
    ("debug_selection", "ascend-o0o1", {"op_debug_mode": 4, "outputs": False, "iterations": 3}, "iterations", "all"),
    ("debug_selection", "ascend-o2", {"op_debug_mode": 3, "iterations": "0-2"}, "iterations", '"all"'),
    ("debug_selection", "ascend-o0o1", {"op_debug_mode": 3, "sample_mode": 1}, "sample_mode", "Leave it out"),
    ("debug_selection", "ascend-o0o1", {"op_debug_mode": 3, "set_dump": True}, "set_dump", "Leave it out"),
    ("overflow_limit", "ascend-o0o1", {"overflow_number": 3}, "overflow_number", "op_debug_mode=3"),
    ("overflow_limit", "ascend-o2", {"op_debug_mode": 3, "overflow_number": 3}, "overflow_number", "npy"),
    ("samples", "ascend-o0o1", {"sample_num": 3}, "sample_num", "sample_mode=1"),
    ("set_dump_mode", "ascend-o0o1", {"set_dump": True, "kernels": ["conv"]}, "set_dump", "Leave one"),
    ("set_dump_mode", "cpu", {"set_dump": True}, "set_dump", "kernels"),
    ("set_dump_mode", "ascend-o2", {"set_dump": True}, "set_dump", "kernels"),
    ("synchrony", "cpu", {"synchronous": False}, "synchronous", "Leave it out"),
    ("synchrony", "ascend-o2", {"synchronous": True}, "synchronous", "Leave it out"),
    ("synchrony", "ascend-o0o1", {"synchronous": False, "save_kernel_args": True}, "save_kernel_args", "synchronous"),
    ("path", "cpu", {"path": "rel/dump"}, "path", "/rel/dump"),
    ("path", "cpu", {"path": "/data/a.b"}, "path", '"/data/a_b"'),
    ("path", "cpu", {"path": 3}, "path", "/data/dump"),
    ("net_name", "cpu", {"net_name": "A/B"}, "net_name", '"A_B"'),
    ("net_name", "cpu", {"net_name": ""}, "net_name", "ResNet50"),
    ("saved_data", "gpu", {"saved_data": "statistics"}, "saved_data", "'statistic'"),
    ("op_debug_mode", "gpu", {"op_debug_mode": 7}, "op_debug_mode", "0 or 1 or 2 or 3 or 4"),
    ("op_debug_mode", "gpu", {"op_debug_mode": True}, "op_debug_mode", "0 or 1"),
    ("file_format", "ge", {"file_format": "pt"}, "file_format", "npy"),
    ("flags", "cpu", {"inputs": 1}, "inputs", "true or false"),
    ("both sides off", "cpu", {"inputs": False, "outputs": False}, "outputs", "True"),
    ("numbers", "ascend-o0o1", {"sample_mode": 1, "sample_num": 0}, "sample_num", "100"),
    ("numbers", "ascend-o0o1", {"op_debug_mode": 3, "overflow_number": -1}, "overflow_number", "100"),
    ("devices", "gpu", {"devices": []}, "devices", "0 to 7"),
    ("devices", "gpu", {"devices": [0, -1]}, "devices[1]", "e.g. 0"),
    ("devices", "gpu", {"devices": [0, 0]}, "devices[1]", "Keep one"),
    ("statistics", "gpu", {"saved_data": "full", "statistic_category": ["mean"]}, "statistic_category[0]", '"avg"'),
    ("statistics", "gpu", {"saved_data": "full", "statistic_category": ["Nan_Count"]}, "statistic_category[0]",
     '"nan count"'),
    ("statistics", "gpu", {"saved_data": "full", "statistic_category": ["max", "max"]}, "statistic_category[1]",
     "Keep one"),
    ("statistics", "gpu", {"saved_data": "full", "statistic_category": []}, "statistic_category", "l2norm"),
    ("kernels", "cpu", {"kernels": ["conv", "conv"]}, "kernels[1]", "Keep one"),
    ("iterations", "cpu", {"iterations": "3-1"}, "iterations", '"1-3"'),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "backend", "options", "where", "remedy"),
    BROKEN,
    ids=[f"{b[0]}-{i}" for i, b in enumerate(BROKEN)],
)
def test_a_broken_rule_is_told(rule: str, backend: str, options: Any, where: str, remedy: str) -> None:
    found = dict(refused(backend, **options))
    assert where in found, found
    assert remedy in found[where]


# note -> (backend, options, the option, why; key and value that are written all the same)
NOTED = [
    ("devices_of_cpu", "cpu", {"devices": [0]}, "devices", "every rank dumps", "support_device", [0]),
    ("layout_of_cpu", "cpu", {"trans_flag": False}, "trans_flag", "one layout", "trans_flag", False),
    *(("unused_categories", backend, {"statistic_category": ["max"]}, "statistic_category", "saved_data is tensor",
       "statistic_category", ["max"]) for backend in ("ascend-o0o1", "ascend-o2", "ge", "gpu", "cpu")),
    *(("sides_of_exception", backend, {"op_debug_mode": 4}, "outputs", "has no output", "input_output", 1)
      for backend in ("ascend-o0o1", "ascend-o2")),
]  # fmt: skip


@pytest.mark.parametrize(("note", "backend", "options", "option", "why", "key", "value"), NOTED)
def test_what_has_no_effect_is_written_and_told(
    note: str, backend: str, options: Any, option: str, why: str, key: str, value: Any
) -> None:
    with pytest.warns(RuntimeWarning, match=f"Probe: {option}: has no effect.*{why}") as caught:
        document = made(backend, **options)
    assert len(caught) == 1
    written = {**document["common_dump_settings"], **document.get("e2e_dump_settings", {})}
    assert written[key] == value


def test_every_note_is_told_above() -> None:
    assert {note.name for note in NOTES} == {noted[0] for noted in NOTED}


def test_every_rule_is_broken_above() -> None:
    assert {rule.name for rule in RULES} <= {b[0] for b in BROKEN}


def test_all_problems_come_at_once() -> None:
    wheres = {w for w, _ in refused("cpu", path="a.b", net_name="A/B", iterations="3-1", kernels=["conv*", ""],
                                    saved_data="full", sample_num=3, devices=[-1])}  # fmt: skip
    assert wheres == {"path", "net_name", "iterations", "kernels[0]", "kernels[1]", "saved_data", "sample_num",
                      "devices[0]"}  # fmt: skip


def test_an_unknown_backend_is_told() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'ascend-o2'"):
        made("ascend_o2")


def test_the_text_is_strict_json() -> None:
    document = made("cpu", kernels=["name-regex(Default/.+)"])
    assert json.loads(settings_text(document)) == document
