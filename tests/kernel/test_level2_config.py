"""msprobe's keys for kernels in config.json: each reaches MindSpore's control file, or is told to have no effect."""

from __future__ import annotations

from typing import Any

import pytest
from config_mapping import as_mapping
from probe_format.errors import ConfigError
from probe_kernel import settings
from probe_kernel.level2 import description_of, mindspore_notes, mindspore_problems, torch_notes
from probe_runtime.config import Config, resolve

ASCEND = "ascend-o0o1"


def config(task: str = "statistics", **section: Any) -> Config:
    top = {"task": task, "level": "L2", "dump_path": "/data/dump"}
    return resolve({**top, task: section})


def written(found: Config, backend: str = ASCEND) -> dict[str, Any]:
    assert mindspore_problems(found, backend) == []
    document = settings(description_of(found, backend), backend, {})
    return {**document["common_dump_settings"], **document.get("e2e_dump_settings", {})}


def test_statistics_on_the_device() -> None:
    """What msprobe 26.2 writes: device, and high when no precision is given."""
    found = written(config(device="device"))
    assert (found["stat_calc_mode"], found["device_stat_precision_mode"]) == ("device", "high")
    assert found["statistic_category"] == ["max", "min", "avg", "l2norm"]
    low = written(config(device="device", precision="low"))
    assert low["device_stat_precision_mode"] == "low"
    host = config(device="host")
    assert "device_stat_precision_mode" not in written(host) and host.warnings == ()
    assert mindspore_notes(host, ASCEND) == ()


def test_precision_is_for_the_device() -> None:
    for found in (config(precision="high"), config(precision="low", device="host")):
        (said,) = found.warnings
        assert said.startswith("statistics.precision: has no effect") and '"device": "device"' in said
        assert "device_stat_precision_mode" not in written(found)
    at_top = resolve(
        {"level": "L2", "dump_path": "/d", "precision": "low", "statistics": {"device": "device"}}
    )
    assert written(at_top)["device_stat_precision_mode"] == "low"


@pytest.mark.parametrize("backend", ["ascend-o2", "ge", "gpu"])
def test_a_backend_without_the_choice_is_told(backend: str) -> None:
    found = config(device="device")
    assert "stat_calc_mode" not in written(found, backend)
    (said,) = mindspore_notes(found, backend)
    assert said.startswith("device: 'device' has no effect: ")


def test_device_without_statistics_is_told() -> None:
    (said,) = mindspore_notes(config("tensor", device="device"), ASCEND)
    assert "task is 'tensor'" in said


@pytest.mark.parametrize("backend", ["ascend-o2", "ge"])
def test_file_format(backend: str) -> None:
    assert written(config("tensor"), backend)["file_format"] == "npy"
    assert written(config("tensor", file_format="npy"), backend)["file_format"] == "npy"
    found = config("tensor", file_format="bin")
    assert written(found, backend)["file_format"] == "bin"
    assert mindspore_notes(found, backend) == () == found.warnings


def test_file_format_elsewhere_is_told() -> None:
    found = config("tensor", file_format="bin")
    assert "file_format" not in written(found)
    (said,) = mindspore_notes(found, ASCEND)
    assert said == "file_format: 'bin' has no effect: Ascend O0/O1 always writes npy files."
    (problem,) = mindspore_problems(config(file_format="bin"), "ascend-o2")
    assert problem.where == "file_format" and "bin files come without statistics" in str(problem)


def test_a_list_of_statistics() -> None:
    every = [
        "max", "min", "mean", "count", "negative zero count", "positive zero count", "nan count", "negative inf count",
        "positive inf count", "zero count", "l2norm", "hash", "md5",
    ]  # fmt: skip
    found = written(config(summary_mode=every))
    assert found["statistic_category"] == [*every[:2], "avg", *every[3:]]
    assert written(config(summary_mode=["md5"]))["statistic_category"] == ["md5"]
    assert written(config(summary_mode=["statistics"]))["statistic_category"] == [
        "max",
        "min",
        "avg",
        "l2norm",
    ]
    (problem,) = mindspore_problems(config(summary_mode=["max", "medium"]), ASCEND)
    assert problem.where == "summary_mode[1]" and "'medium' is not a statistic" in str(problem)
    (problem,) = mindspore_problems(config(summary_mode=["count"], device="device"), ASCEND)
    assert problem.where == "summary_mode" and "the device computes max" in str(problem)
    (said,) = mindspore_notes(config("tensor", summary_mode=["max"]), ASCEND)
    assert said == "summary_mode: has no effect: task is 'tensor'."


@pytest.mark.parametrize(
    "section",
    [{}, {"device": "device", "precision": "low"}, {"file_format": "bin"}, {"summary_mode": ["max", "mean"]}],
)
def test_the_mapping_gives_the_same_again(section: dict[str, Any]) -> None:
    found = config(**section)
    again = resolve(as_mapping(found))
    assert again == found and again.warnings == found.warnings


def test_wrong_values_are_refused_at_this_level_only() -> None:
    wrong = {"device": "gpu", "file_format": "pt", "summary_mode": [3], "precision": "middle"}
    with pytest.raises(ConfigError) as caught:
        config(**wrong)
    assert {p.where for p in caught.value.problems} == {
        "statistics.device", "statistics.file_format", "statistics.summary_mode[0]", "statistics.precision",
    }  # fmt: skip
    other = resolve({"level": "L1", "dump_path": "/d", "statistics": {"device": "gpu", "file_format": "pt"}})
    assert len(other.warnings) == 2 and all("has no effect in Probe" in text for text in other.warnings)
    for section in ({"summary_mode": ["max"]}, {"precision": "low"}):
        with pytest.raises(ConfigError):
            resolve({"level": "L1", "dump_path": "/d", "statistics": section})


def test_pytorch_is_told() -> None:
    assert torch_notes(config("tensor")) == ()
    found = torch_notes(config("tensor", device="device", file_format="bin", summary_mode=["max"]))
    assert [text.partition(":")[0] for text in found] == ["device", "file_format", "summary_mode"]


def test_the_level_may_come_as_an_argument() -> None:
    found = resolve({"dump_path": "/d", "statistics": {"device": "device"}}, level="L2")
    assert found.device == "device"
    found = resolve({"dump_path": "/d", "level": "L2", "statistics": {"device": "device"}}, level="L1")
    assert found.device == "host" and len(found.warnings) == 1
