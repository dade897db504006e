"""Control files that are there already: the documents' examples as they stand, msprobe's, and those that are wrong.

data/control has the JSON examples of MindSpore's Dump documents (master and r1.5), letter by letter.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from probe_format.cli.main import main
from probe_format.errors import ConfigError
from probe_kernel import BACKENDS, KernelDump, load_settings, settings

EXAMPLES = Path(__file__).parents[1] / "data" / "control"
LIST = "kernels: have no effect: dump_mode 0 dumps every kernel"
CATEGORIES = "statistic_category: has no effect: saved_data is tensor"
DOCUMENTS = [
    ("ascend-o0o1", "ascend-o0o1", [LIST, CATEGORIES]),
    ("ascend-o2", "ascend-o2", [LIST, CATEGORIES]),
    ("ascend-o2", "ge", [LIST, CATEGORIES]),
    (
        "cpu",
        "cpu",
        ["line 16: a comma before a closing bracket", LIST, "support_device: has no effect", CATEGORIES],
    ),
    ("cpu", "gpu", ["line 16: a comma before a closing bracket", LIST, CATEGORIES]),
    ("r1.5-sync", "r1.5-sync", [LIST]),
    ("r1.5-async", "r1.5-async", [LIST]),
]


def changed(tmp_path: Path, example: str = "ascend-o0o1", **keys: Any) -> Path:
    """An example with other values; ... removes a key."""
    text = (EXAMPLES / f"{example}.json").read_text().replace("true,\n    }", "true\n    }")
    document = json.loads(text)
    for key, value in keys.items():
        section = next((s for s in document.values() if key in s), document["common_dump_settings"])
        if value is ...:
            del section[key]
        else:
            section[key] = value
    path = tmp_path / "data_dump.json"
    path.write_text(json.dumps(document))
    return path


def problems(path: Path, backend: str = "ascend-o0o1") -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        load_settings(path, backend, {})
    assert all(p.what and p.remedy and p.where.startswith(str(path)) for p in caught.value.problems)
    return {p.where.removeprefix(f"{path}: "): f"{p.what} {p.remedy}" for p in caught.value.problems}


@pytest.mark.parametrize(("example", "backend", "notes"), DOCUMENTS)
def test_the_documents_examples_are_accepted(
    example: str, backend: str, notes: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = EXAMPLES / f"{example}.json"
    found = load_settings(path, backend, {})
    refused = [note for note in notes if "comma" in note]
    heard = [*found.refused, *found.notes]
    assert len(heard) == len(notes) and len(found.refused) == len(refused)
    for said, note in zip(heard, notes, strict=True):
        assert said.startswith(note)
    given = found.description
    assert (given.path, given.net_name, given.iterations) == ("/absolute_path", "ResNet50", "0|5-8|100-120")
    assert given.kernels == () and given.inputs and given.outputs
    assert main(["kernel", "config", str(path), "--backend", backend]) == len(refused)
    said = capsys.readouterr().out
    assert all(f"{'wrong' if note in refused else 'note'}: {note}" in said for note in notes)
    written = json.loads(said[said.index("\n{") : said.rindex("\n}") + 2])
    shown = json.loads(path.read_text().replace("true,\n    }", "true\n    }"))
    for section, keys in written.items():
        for key, value in keys.items():
            if key not in ("kernels", "file_format"):
                assert shown[section][key] == value


def test_every_backend_has_an_example() -> None:
    assert {backend for _, backend, _ in DOCUMENTS} == set(BACKENDS)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_settings_writes_is_read_again(backend: str, tmp_path: Path) -> None:
    dump = KernelDump(path="/d", iterations=[0, range(5, 9)], kernels=["Default/a/Conv2D-op1"], outputs=False)
    path = tmp_path / "data_dump.json"
    document = settings(dump, backend, {})
    document.get("common_dump_settings", {}).pop("statistic_category", None)
    path.write_text(json.dumps(document))
    found = load_settings(path, backend, {})
    assert settings(found.description, backend, {})["common_dump_settings"]["iteration"] == "0|5-8"
    assert found.description.kernels == ("Default/a/Conv2D-op1",)
    assert (found.description.inputs, found.description.outputs) == (True, False)


def test_a_file_of_msprobe(tmp_path: Path) -> None:
    """kernel_kbyk_dump.json as msprobe 26.2 writes it for task tensor, and its exception dump's."""
    common = {
        "dump_mode": 0, "path": "/d", "net_name": "Net", "iteration": "0|2", "saved_data": "tensor", "input_output": 0,
        "kernels": [], "support_device": [0], "statistic_category": [],
    }  # fmt: skip
    e2e = {"enable": True, "trans_flag": True, "stat_calc_mode": "host"}
    path = tmp_path / "kernel_kbyk_dump.json"
    path.write_text(json.dumps({"common_dump_settings": common, "e2e_dump_settings": e2e}))
    assert load_settings(path, "ascend-o0o1", {}).notes == ()
    common |= {"op_debug_mode": 4, "file_format": "npy", "iteration": "all"}
    path.write_text(json.dumps({"common_dump_settings": common, "e2e_dump_settings": e2e}))
    notes = load_settings(path, "ascend-o2", {}).notes
    assert [note.partition(":")[0] for note in notes] == ["e2e_dump_settings", "input_output"]


def test_op_debug_mode_4_with_both_sides(tmp_path: Path) -> None:
    path = changed(tmp_path, "ascend-o2", op_debug_mode=4, iteration="all")
    notes = load_settings(path, "ascend-o2", {}).notes
    assert any(note.startswith("input_output: has no effect: op_debug_mode 4") for note in notes)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("stat_calc_mode", "x"), ("stat_calc_mode", None), ("device_stat_precision_mode", 1), ("sample_mode", 2),
        ("sample_mode", True), ("sample_num", 0), ("sample_num", -1), ("save_kernel_args", 1), ("overflow_number", 1),
    ],
)  # fmt: skip
def test_what_mindspore_refuses_on_a_cpu_is_refused_though_no_cpu_uses_it(
    key: str, value: Any, tmp_path: Path
) -> None:
    """As MindSpore 2.10 does: each of these files was given to it."""
    path = changed(tmp_path, "cpu")
    document = json.loads(path.read_text())
    document[f"{'common' if key == 'overflow_number' else 'e2e'}_dump_settings"][key] = value
    path.write_text(json.dumps(document))
    assert "MindSpore refuses the file. Remove it." in problems(path, "cpu")[key]


def test_a_pipe_is_no_control_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(ConfigError, match="no file with an end"):
        load_settings(tmp_path / "pipe.json", "cpu")


def test_blanks_in_iteration_are_the_documents_and_told(tmp_path: Path) -> None:
    found = load_settings(changed(tmp_path, iteration="0 | 5-8 | 100-120"), "ascend-o0o1", {})
    assert found.description.iterations == "0|5-8|100-120"
    assert any('write "0|5-8|100-120"' in why for why in found.refused)
    assert main(["kernel", "config", str(found.path), "--backend", "ascend-o0o1"]) == 1


@pytest.mark.parametrize(
    "key", ["dump_mode", "net_name", "iteration", "input_output", "kernels", "support_device"]
)
def test_what_mindspore_refuses_to_be_without(key: str, tmp_path: Path) -> None:
    """Measured with 2.10.0 on a CPU."""
    found = problems(changed(tmp_path, **{key: ...}))
    assert list(found) == [key] and f'Write "{key}": ' in found[key]


@pytest.mark.parametrize(
    ("keys", "where", "said"),
    [
        ({"input_output": 3}, "input_output", "Write 0 for both"),
        ({"input_output": True}, "input_output", "Write 0 for both"),
        ({"dump_mode": 7}, "dump_mode", "2 for set_dump"),
        ({"dump_mode": 1, "kernels": []}, "kernels", 'Write "dump_mode": 0'),
        ({"dump_mode": 2}, "dump_mode", '"kernels": []'),
        ({"kernels": "Conv"}, "kernels", "not a list"),
        ({"dump_mode": 1, "kernels": ["conv*"]}, "kernels[0]", "name-regex(conv.*)"),
        ({"iteration": 3}, "iteration", "not text"),
        ({"iteration": "3-1"}, "iteration", 'Write "1-3"'),
        ({"iteration": None}, "iteration", "is null"),
        ({"support_device": 0.5}, "support_device", "not a list of numbers"),
        ({"support_device": 0}, "support_device", "not a list of numbers"),
        ({"path": "rel"}, "path", "not absolute"),
        ({"path": 3}, "path", "not text"),
        ({"saved_data": "statistics"}, "saved_data", "'statistic'"),
        ({"statistic_category": "max"}, "statistic_category", "not a list"),
        ({"saved_data": "full", "statistic_category": []}, "statistic_category", "is empty"),
        ({"enable": 1}, "enable", 'Write "enable": true'),
        ({"trans_flag": "yes"}, "trans_flag", "true or false"),
        ({"op_debug_mode": 3, "input_output": 1}, "input_output", 'Write "input_output": 0'),
        ({"op_debug_mode": 4}, "iteration", 'Write "all"'),
        ({"saved_dat": "full"}, "saved_dat", "saved_data"),
        ({"stat_calc_mode": "device"}, "stat_calc_mode", 'saved_data="statistic"'),
    ],
)
def test_what_is_wrong_is_named_by_its_key(
    keys: dict[str, Any], where: str, said: str, tmp_path: Path
) -> None:
    found = problems(changed(tmp_path, **keys))
    assert list(found) == [where]
    assert said in found[where]


def test_all_of_it_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = changed(tmp_path, path="rel", net_name="a/b", input_output=7, iteration="x", kernels=...)
    assert set(problems(path)) == {"path", "net_name", "input_output", "iteration", "kernels"}
    assert main(["kernel", "config", str(path), "--backend", "ascend-o0o1"]) == 1
    assert "net_name" in capsys.readouterr().err


def test_a_section_or_key_of_another_backend_is_told(tmp_path: Path) -> None:
    notes = load_settings(changed(tmp_path), "ascend-o2", {}).notes
    assert "e2e_dump_settings: Ascend O2 does not read this section." in notes
    notes = load_settings(changed(tmp_path, file_format="npy"), "ascend-o0o1", {}).notes
    assert "file_format: has no effect: Ascend O0/O1 does not read it." in notes


def test_a_missing_enable_is_told(tmp_path: Path) -> None:
    found = load_settings(changed(tmp_path, enable=...), "ascend-o0o1", {})
    assert found.description.synchronous is False
    assert "enable: is left out, so the dump is asynchronous." in found.notes
    found = load_settings(changed(tmp_path, "cpu", enable=...), "cpu", {})
    assert any(note.startswith("enable: is left out") for note in found.notes)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is not JSON"),
        (bytes(64), "is not JSON"),
        (b"[]", "holds []"),
        (b"{}", "is missing"),
        (b'{"common_dump_settings": 3}', "should hold keys"),
        (b'{"async_dump_settings": {}, "common_dump_settings": {}}', "not a key of a control file"),
        (b"[" * 100_000, "is not JSON"),
        (b"\xff\xfe{", "not text in UTF-8"),
        (b'{"common_dump_settings": {"a": NaN}}', "NaN is not JSON"),
        (b"{," * 1000, "is not JSON"),
        (b" " * (1 << 20) + b"{}", "has over 1048576 bytes"),
    ],
)
def test_files_that_are_none(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "data_dump.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_settings(path, "cpu", {})
    assert said in str(caught.value)


def test_a_byte_order_mark_and_a_key_twice(tmp_path: Path) -> None:
    path = changed(tmp_path)
    text = path.read_text().replace('"net_name": "ResNet50"', '"net_name": "A", "net_name": "B"')
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    found = load_settings(path, "ascend-o0o1", {})
    assert found.description.net_name == "B"
    assert "net_name: is there twice; the last one counts." in found.notes


def test_a_comma_in_a_text_stays(tmp_path: Path) -> None:
    path = changed(tmp_path, dump_mode=1, kernels=["name-regex(a{1,}Default,})"])
    path.write_text(path.read_text()[:-1] + ",}")
    found = load_settings(path, "ascend-o0o1", {})
    assert found.description.kernels == ("name-regex(a{1,}Default,})",)


def test_the_variable_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MINDSPORE_DUMP_CONFIG", raising=False)
    assert main(["kernel", "config", "--backend", "cpu"]) == 1
    assert "MINDSPORE_DUMP_CONFIG" in capsys.readouterr().err
    monkeypatch.setenv("MINDSPORE_DUMP_CONFIG", os.fspath(EXAMPLES / "cpu.json"))
    assert main(["kernel", "config", "--backend", "cpu"]) == 1  # the documents' own, with a comma too many
    assert "cpu.json: CPU reads it as" in capsys.readouterr().out
    monkeypatch.setenv("MINDSPORE_DUMP_CONFIG", os.fspath(tmp_path / "none.json"))
    assert main(["kernel", "config", "--backend", "cpu"]) == 1
    assert "none.json" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stop:
        main(["kernel", "config", "--backend", "tpu"])
    assert stop.value.code == 2


def test_a_path_from_the_environment(tmp_path: Path) -> None:
    for value in ("", ...):
        path = changed(tmp_path, path=value)
        assert (
            load_settings(path, "ascend-o0o1", {"MS_DIAGNOSTIC_DATA_PATH": "/data"}).description.path is None
        )
        assert "MS_DIAGNOSTIC_DATA_PATH is not set" in problems(path)["path"]
