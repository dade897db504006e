"""`probe verify`: complete, recovered, torn, damaged, and that each kind of damage is found."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from corpus_cases import CORPUS, EXPECTED, copied, edit, rewrite
from probe_format.read.verify import verify
from probe_format.write import recover


@pytest.mark.parametrize("where", EXPECTED)
def test_the_corpus_has_the_expected_states(where):
    (verdict,) = verify(CORPUS / where)
    assert verdict.state == EXPECTED[where]["state"], verdict.problems
    assert bool(verdict.problems) == (verdict.state == "damaged")


@pytest.fixture
def folder(tmp_path):
    """A complete dump that may be changed."""
    return copied(tmp_path)


def problems(folder):
    (verdict,) = verify(folder)
    assert verdict.state == ("damaged" if verdict.problems else "complete")
    return "\n".join(verdict.problems)


def test_rewriting_alone_is_no_damage(folder):
    rewrite(folder, "dump.json", (folder / "dump.json").read_bytes())
    assert problems(folder) == ""


@pytest.mark.parametrize("name", ["dump.json", "stack.json", "construct.json"])
def test_a_file_that_changed_or_is_gone(folder, name):
    raw = (folder / name).read_bytes()
    (folder / name).write_bytes(raw + b" ")
    assert f"{name} has {len(raw) + 1} bytes; it had {len(raw)}" in problems(folder)
    (folder / name).write_bytes(raw.replace(b"forward", b"forwart", 1))
    assert f"{name} was changed: its CRC-32 is" in problems(folder)
    (folder / name).unlink()
    assert f"{name} is missing; report.json lists it." in problems(folder)


def test_of_one_file_it_is_said_where_its_checksums_are(folder):
    for says in (
        "one file was given; its folder's report.json has them.",
        "only dumps by Probe have a report.json.",
    ):
        (verdict,) = verify(folder / "dump.json")
        assert f"No checksums: {says}" in verdict.notes
        (folder / "report.json").unlink(missing_ok=True)


def test_a_missing_or_broken_report(folder):
    (folder / "report.json").write_text('{"state": "complete"}')
    assert "report.json: format_version: is missing." in problems(folder)
    (folder / "report.json").unlink()
    assert "report.json is missing" in problems(folder)


@pytest.mark.parametrize(
    ("name", "old", "new", "says"),
    [
        ("dump.json", b'"level":"mix"', b'"level":"mux"', "level: 'mux' is not one of"),
        ("dump.json", b'"output":[', b'"output":[3,', "output.0: a bare int"),
        ("dump.json", b'"Max":4.0', b'"Max":NaN', "not strict JSON: it holds the bare token NaN"),
        ("dump.json", b'"nan_count":1,', b"", "has posinf_count but not nan_count"),
        (
            "dump.json",
            b"Torch.log.0.forward",
            b"Torch.log.x.forward",
            "'Torch.log.x.forward' is not a record name",
        ),
        (
            "dump.json",
            b"Torch.log.0.forward",
            b"Torch.log.1.forward",
            "does not have the record 'Torch.log.1",
        ),
        (
            "stack.json",
            b"Torch.log.0.forward",
            b"Torch.lag.0.forward",
            "stack.json has 'Torch.lag.0.forward'",
        ),
        ("dump.json", b"{", b"[", "not JSON"),
        ("stack.json", b"[[", b"[3,[", "stack.json.0: .* is not \\[\\[names\\]"),
        ("construct.json", b"null", b"7", "7 is not a parent"),
        ("construct.json", b'": "Module.fc', b'": "Module.ff', "is not a node"),
        ("construct.json", b'"Torch.log.0.forward"', b'"Torch.lug.0.forward"', "does not have the record"),
    ],
)
def test_what_the_files_say_is_checked_too(folder, name, old, new, says):
    edit(folder, name, old, new)
    assert re.search(says, problems(folder)), problems(folder)


@pytest.mark.parametrize("key", ["records", "tensors", "tensor_files"])
def test_counts_have_to_agree(folder, key):
    document = json.loads((folder / "report.json").read_bytes())
    document[key] += 1
    (folder / "report.json").write_text(json.dumps(document))
    assert (
        f"report.json counts {document[key]} {key.replace('_', ' ')}; there are {document[key] - 1}."
        in problems(folder)
    )


INPUT = "Module.fc.Linear.forward.0.input.0.pt"
WEIGHT = "Module.fc.Linear.forward.0.parameters.weight.npy"


@pytest.mark.parametrize("name", [INPUT, WEIGHT])
def test_a_tensor_file_that_is_gone_short_or_changed(folder, name):
    path = folder / "dump_tensor_data" / name
    raw = path.read_bytes()
    path.unlink()
    assert f"its file {name} is missing." in problems(folder)
    path.write_bytes(raw[:-40])
    assert "its file cannot be read" in problems(folder)
    at = raw.index(np.float32(1).tobytes())
    path.write_bytes(raw[: at + 2] + b"\x41" + raw[at + 3 :])
    assert "CRC-32" in problems(folder)
    path.write_bytes(b"")
    assert "its file cannot be read" in problems(folder)


def test_a_tensor_file_of_another_tensor(folder):
    data = folder / "dump_tensor_data"
    np.save(data / WEIGHT, np.zeros((3, 2), np.float32))
    assert "has the shape (3, 2), not (2, 2)" in problems(folder)
    np.save(data / WEIGHT, np.zeros((2, 2), np.float32))
    assert "its record says" in problems(folder)


def test_a_pt_file_of_another_tensor(folder):
    torch = pytest.importorskip("torch")
    path = folder / "dump_tensor_data" / INPUT
    torch.save(torch.zeros(1), path)
    assert "has the shape (1,), not (2, 2)" in problems(folder)
    torch.save(torch.zeros(2, 2), path)
    assert "its record says" in problems(folder)
    torch.save(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), path)
    assert f"its file {INPUT} was changed: its CRC-32 is " in problems(folder)
    shutil.make_archive(str(path), "zip", folder, "stack.json")
    Path(f"{path}.zip").rename(path)
    assert "is not a whole PyTorch file" in problems(folder)


def test_strays_and_lost_tensors_are_notes(folder):
    (folder / "dump_tensor_data" / "old.pt").write_bytes(b"")
    edit(folder, "dump.json", b'"requires_grad":false,', b'"requires_grad":false,"lost":"disk full",')
    (verdict,) = verify(folder)
    assert verdict.state == "complete"
    assert any(note.startswith("1 lost: ") and note.endswith(" (disk full)") for note in verdict.notes)
    assert any("1 files in dump_tensor_data belong to no record" in note for note in verdict.notes)


def test_a_long_list_of_problems_ends(folder):
    raw = (folder / "dump.json").read_bytes()
    many = b",\n".join(b'"bad.%d": 3' % i for i in range(200))
    rewrite(folder, "dump.json", raw.replace(b'"data": {\n', b'"data": {\n' + many + b",\n"))
    (verdict,) = verify(folder)
    assert len(verdict.problems) == 51 and verdict.problems[-1] == "... and more."


def test_the_tensor_files_of_a_killed_run_are_checked(tmp_path):
    for path in (copied(tmp_path, "torn") / "dump_tensor_data").iterdir():
        raw = path.read_bytes()
        path.write_bytes(raw[:-1])
        (verdict,) = verify(tmp_path / "dump")
        assert verdict.state == "damaged" and path.name in verdict.problems[0]
        path.write_bytes(raw)
    assert verify(tmp_path / "dump")[0].state == "torn"


def test_a_torn_journal_beside_a_broken_report_is_damage_that_can_be_recovered(tmp_path):
    (copied(tmp_path, "torn") / "report.json").write_text("{")
    (verdict,) = verify(tmp_path / "dump")
    assert verdict.state == "damaged" and "probe recover" in verdict.notes[-1]
    recover(tmp_path / "dump")
    (verdict,) = verify(tmp_path / "dump")
    assert verdict.state == "recovered"


def test_progress_is_told(folder):
    seen = []
    verify(folder, lambda rank, done, total: seen.append((done, total)))
    assert seen == [(i, len(seen)) for i in range(1, len(seen) + 1)] and len(seen) == 16
