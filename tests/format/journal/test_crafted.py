"""Journals made by hand: wrong types are damage, and what a small one asks for stays small."""

import json
import struct

import pytest
from bounded import probe
from crafted_journal import HEAD, frame, journal
from probe_format.cli.show import heading, tree
from probe_format.errors import FormatError
from probe_format.journal import read_journal
from probe_format.journal.version1 import MAGIC_1
from probe_format.read.dump import open as open_dump
from probe_format.read.verify import verify
from probe_format.write import recover

NAME = "Torch.a.0.forward"
GRADIENT = "x_grad.0.debug"
GREEDY = [
    {"k": "grad", "n": GRADIENT, "p": [300_000_000], "v": {"type": "float", "value": 1.0}},
    {"k": "grad", "n": GRADIENT, "p": [0, 300_000_000], "v": None},
    {"k": "back", "n": "Torch.a.0.backward", "t": 0, "i": [[[300_000_000], None]]},
    {"k": "grad", "n": GRADIENT, "p": [0] * 100_000, "v": None},
    {"k": "grad", "n": GRADIENT, "p": [10**30], "v": None},
]


@pytest.mark.parametrize("event", GREEDY, ids=range(len(GREEDY)))
def test_an_index_is_not_believed(tmp_path, event):
    journal(tmp_path, event)
    assert probe("verify", tmp_path)[0] == 4
    assert probe("show", tmp_path)[0] == 1
    assert probe("recover", tmp_path)[0] == 1


def test_many_small_indexes_and_forms_have_to_fit_the_file_too(tmp_path):
    journal(
        tmp_path, *({"k": "grad", "n": f"x{i}_grad.0.debug", "p": [200_000], "v": None} for i in range(500))
    )
    assert probe("verify", tmp_path)[0] == 4
    exits = (
        {"k": "exit", "n": NAME, "g": [200_000_000, 1]},
        {"k": "back", "n": "Torch.a.0.backward", "t": 0},
    )
    journal(tmp_path, *exits)
    assert probe("verify", tmp_path)[0] == 4
    passes = [{"k": "back", "n": "Torch.a.0.backward", "t": t} for t in range(3000)]
    journal(tmp_path, {"k": "exit", "n": NAME, "g": [[[None] * 50_000], 1]}, *passes)
    assert probe("verify", tmp_path)[0] == 4


def test_what_a_run_can_ask_for_is_given(tmp_path):
    """Twenty thousand outputs, the gradient of the last of which came, in a hundred passes."""
    passes = [{"k": "back", "n": "Torch.a.0.backward", "t": t, "i": [[[19_999], None]]} for t in range(100)]
    journal(tmp_path, {"k": "exit", "n": NAME, "g": [20_000, 1]}, *passes)
    (rank,) = open_dump(tmp_path).ranks
    assert len(rank.records["Torch.a.0.backward"].json["later_passes"]) == 99


def test_false_frames_are_looked_through_once(tmp_path):
    """Each claims all that follows as its payload; between them are whole ones, so that reading goes on."""
    rank = tmp_path / "step0" / "rank"
    rank.mkdir(parents=True)
    false = 30_000
    whole = frame({"k": "tally", "d": {}})
    size = false * (13 + len(whole))
    body = b"".join(
        struct.pack("<II", max(size - (13 + len(whole)) * i - 100, 0), 1) + b'{"k":' + whole
        for i in range(false)
    )
    (rank / "records.journal").write_bytes(MAGIC_1 + frame(HEAD) + body)
    code, said = probe("verify", tmp_path)
    assert code == 4 and "more places" in said and len(said) < 10_000
    body = b"".join(struct.pack("<II", (60_000 - i) * 12, 1) + b'{"k":' for i in range(60_000))
    (rank / "records.journal").write_bytes(MAGIC_1 + frame(HEAD) + body)
    assert probe("verify", tmp_path)[0] == 4


def test_after_damage_the_rest_is_still_found(tmp_path):
    events = [{"k": "fault", "w": f"here {i}", "m": "it"} for i in range(2000)]
    path = journal(tmp_path, *events) / "records.journal"
    raw = bytearray(path.read_bytes())
    at = [raw.index(b"here %d" % i) for i in range(0, 2000, 7)]
    for i in at:
        raw[i] ^= 1
    path.write_bytes(raw)
    found = read_journal(path)
    assert found.state == "damaged" and len(found.events) == 1 + 2000 - len(at)


WRONG = [
    {"k": "head", "header": 5},
    {"k": "head", "header": [[1, 2]]},
    {"k": "head", "header": {**HEAD["header"], "level": [[]]}},
    {"k": "frames", "i": [], "f": 3},
    {"k": "enter"},
    {"k": "enter", "n": 5},
    {"k": "enter", "n": []},
    {"k": "enter", "n": NAME, "u": 5},
    {"k": "enter", "n": NAME, "u": ["a"]},
    {"k": "enter", "n": NAME, "s": []},
    {"k": "enter", "n": NAME, "a": 3},
    {"k": "enter", "n": NAME, "x": 7},
    {"k": "back", "n": None, "i": [[[0], 1]]},
    {"k": "back", "n": "Torch.a.0.backward", "t": [], "i": [[[0], 1]]},
    {"k": "back", "n": "Torch.a.0.backward", "i": 7},
    {"k": "back", "n": "Torch.a.0.backward", "i": [["ab", 1]]},
    {"k": "back", "n": "Torch.a.0.backward", "i": [[[-1], None]]},
    {"k": "back", "n": "Torch.a.0.backward", "i": [[[None], None]]},
    {"k": "pgrad", "n": NAME},
    {"k": "redo", "n": {}},
    {"k": "stat", "r": [[1]]},
    {"k": "stat", "r": [[[], {}]]},
    {"k": "file", "r": 9},
    {"k": "file", "r": [[]]},
    {"k": "save", "n": 3, "v": None},
    {"k": "save", "n": "x.0.debug", "v": None, "g": 3},
    {"k": "grad", "n": GRADIENT, "p": 3, "v": None},
    {"k": "fault", "w": [], "m": {}},
    {"k": "fault", "w": 1, "m": 2},
    {"k": "tally", "d": 5},
    {"k": "tally", "d": {"counts": 7}},
    {"k": "tally", "d": {"summary": 7}},
    {"k": "tally", "d": {"summary": {"norms": 7}}},
    {"k": "tally", "d": {"not_seen": [3]}},
    {"k": "save", "n": "x.0.debug", "v": {"type": "a", "dtype": "b", "shape": [-1, "c"], "Norm": "d"}},
]


@pytest.mark.parametrize("event", WRONG, ids=[json.dumps(event)[:60] for event in WRONG])
def test_an_event_of_a_wrong_form_is_damage(tmp_path, event):
    rank = journal(tmp_path, event)
    (verdict,) = verify(tmp_path)
    assert verdict.state == "damaged", verdict
    assert all(len(problem) <= 1000 for problem in verdict.problems)
    (found,) = open_dump(tmp_path).ranks
    try:
        heading(found)
        list(tree(found))
    except FormatError as error:
        assert str(rank) in str(error)
    recover(tmp_path)


@pytest.mark.parametrize("depth", [300, 900, 100_000])
@pytest.mark.parametrize("where", ["v", "g"])
def test_an_event_that_nests_deep_is_no_traceback(tmp_path, depth, where):
    deep = b"[" * depth + b"]" * depth
    value = b'{"k":"save","n":"x.0.debug","v":' + deep + b"}"
    form = b'{"k":"exit","n":"Torch.a.0.forward","g":[' + deep + b",1]}"
    journal(tmp_path, value if where == "v" else form, {"k": "back", "n": "Torch.a.0.backward", "t": 0})
    for command in ("verify", "show", "recover", "verify", "show"):
        probe(command, tmp_path)
