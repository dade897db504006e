"""Journals made by hand: wrong types are damage, and what a small one asks for stays small."""

import json
import struct

import pytest
from bounded import probes
from crafted_journal import HEAD, frame, journal, journal_2
from probe_format.cli.show import heading, tree
from probe_format.errors import DamagedError, FormatError
from probe_format.journal import MAGIC, folded, read_journal
from probe_format.journal.pages import Fillers
from probe_format.journal.places import Places
from probe_format.journal.value_paths import Room
from probe_format.journal.version1 import MAGIC_1
from probe_format.read.dump import open as open_dump
from probe_format.read.verify import verify
from probe_format.schema import others
from probe_format.write import recover

NAME, BACK = "Torch.a.0.forward", "Torch.a.0.backward"
GRADIENT = "x_grad.0.debug"
GREEDY = [
    {"k": "grad", "n": GRADIENT, "p": [300_000_000], "v": {"type": "float", "value": 1.0}},
    {"k": "grad", "n": GRADIENT, "p": [0, 300_000_000], "v": None},
    {"k": "back", "n": BACK, "t": 0, "i": [[[300_000_000], None]]},
    {"k": "grad", "n": GRADIENT, "p": [0] * 100_000, "v": None},
    {"k": "grad", "n": GRADIENT, "p": [10**30], "v": None},
]


def test_an_index_is_not_believed(tmp_path):
    ranks = [journal(tmp_path / str(i), event) for i, event in enumerate(GREEDY)]
    codes, _ = probes(*((word, rank) for rank in ranks for word in ("verify", "show", "recover")))
    assert codes == [4, 1, 1] * len(GREEDY)


def test_many_small_indexes_and_forms_have_to_fit_the_file_too(tmp_path):
    small = ({"k": "grad", "n": f"x{i}_grad.0.debug", "p": [200_000], "v": None} for i in range(500))
    passes = [{"k": "back", "n": BACK, "t": t} for t in range(3000)]
    ranks = [
        journal(tmp_path / "a", *small),
        journal(tmp_path / "b", {"k": "exit", "n": NAME, "g": [200_000_000, 1]}, passes[0]),
        journal(tmp_path / "c", {"k": "exit", "n": NAME, "g": [[[None] * 50_000], 1]}, *passes),
    ]
    assert probes(*(("verify", rank) for rank in ranks))[0] == [4, 4, 4]


def test_what_a_run_can_ask_for_is_given(tmp_path):
    """Twenty thousand outputs, the gradient of the last of which came, in a hundred passes."""
    passes = [{"k": "back", "n": BACK, "t": t, "i": [[[19_999], None]]} for t in range(100)]
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
    other = tmp_path / "step0" / "rank1"
    other.mkdir()
    body = b"".join(struct.pack("<II", (60_000 - i) * 12, 1) + b'{"k":' for i in range(60_000))
    (other / "records.journal").write_bytes(MAGIC_1 + frame(HEAD) + body)
    codes, said = probes(("verify", rank), ("verify", other))
    assert codes == [4, 4] and "more places" in said and len(said) < 20_000


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
    {"k": "back", "n": BACK, "t": [], "i": [[[0], 1]]},
    {"k": "back", "n": BACK, "i": 7},
    {"k": "back", "n": BACK, "i": [["ab", 1]]},
    {"k": "back", "n": BACK, "i": [[[-1], None]]},
    {"k": "back", "n": BACK, "i": [[[None], None]]},
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


def test_an_event_that_nests_deep_is_no_traceback(tmp_path):
    ranks = []
    for where, depth in (("v", 300), ("g", 900), ("v", 100_000)):
        deep = b"[" * depth + b"]" * depth
        value = b'{"k":"save","n":"x.0.debug","v":' + deep + b"}"
        form = b'{"k":"exit","n":"Torch.a.0.forward","g":[' + deep + b",1]}"
        event = value if where == "v" else form
        ranks.append(journal(tmp_path / f"{where}{depth}", event, {"k": "back", "n": BACK, "t": 0}))
    probes(*((word, rank) for rank in ranks for word in ("show", "recover", "verify")))


SAVED = "x.0.debug"
TENSOR = b'{"type":"t","dtype":"d","shape":[1]%b}'
ENTER, EXIT = {"k": "enter", "n": NAME, "u": None, "v": "aw"}, {"k": "exit", "n": NAME}


def called(hole, *after):
    """A call with a hole in its argument."""
    return [(ENTER, b"[%b]" % (TENSOR % hole), b"{}"), (EXIT, b"[]"), *after]


def fill(**fillers):
    """Fillers of holes by their numbers, which follow an n."""
    return {"k": "fill", "h": [int(name[1:]) for name in fillers]}, *fillers.values()


WRONG_2 = {
    "half a hole": called(b"\x1an1"),
    "a third half of a hole": called(b"\x1an1\x1a,\x1an2"),
    "a hole in a hole": called(b"\x1an\x1a1\x1a"),
    "a letter of none": called(b"\x1az1\x1a"),
    "no letter": called(b"\x1a1\x1a"),
    "no number": called(b"\x1an\x1a"),
    "a number below 0": called(b"\x1an-1\x1a"),
    "no hole at all": called(b"\x1a\x1a"),
    "a number of many digits": called(b"\x1an" + b"9" * 5000 + b"\x1a"),
    "a filler that holds its own hole": called(b"\x1an1\x1a", fill(n1=b",\x1an1\x1a")),
    "two fillers that hold each other": called(b"\x1an1\x1a", fill(n1=b"\x1an2\x1a", n2=b"\x1an1\x1a")),
    "half a hole in a filler": called(b"\x1an1\x1a", fill(n1=b',"Max":1\x1a')),
    "a filler that is no member": called(b"\x1an1\x1a", fill(n1=b"Max")),
    "a filler too few": called(b"\x1an1\x1a", ({"k": "fill", "h": [1, 2]}, b"")),
    "a filler too many": called(b"\x1an1\x1a", ({"k": "fill", "h": [1]}, b"", b"")),
    "a value too few": [({**ENTER}, b"[]")],
    "a value too many": [({**ENTER}, b"[]", b"{}", b"{}")],
    "two outputs": [(ENTER, b"[]", b"{}"), (EXIT, b"[]", b"[]")],
    "a saved value and another": [({"k": "save", "n": SAVED}, b"null", b"null")],
    "no saved value": [({"k": "save", "n": SAVED},)],
    "no gradient": [({"k": "grad", "n": GRADIENT, "p": []},)],
    "two gradients": [({"k": "grad", "n": GRADIENT, "p": []}, b"null", b"null")],
    "no gradient of a parameter": [({"k": "pgrad", "n": NAME, "q": "w"},)],
    "two gradients of a parameter": [({"k": "pgrad", "n": NAME, "q": "w"}, b"null", b"null")],
    "a recomputation of one value": [({"k": "redo", "n": NAME}, b"[]")],
    "two recomputed outputs": [({"k": "redone", "n": NAME}, b"[]", b"[]")],
    "slots without values": [({"k": "back", "n": BACK, "t": 0, "u": None, "v": [["i", 0]]},)],
    "a value without a slot": [({"k": "back", "n": BACK, "t": 0, "u": None, "v": []}, b"null")],
    "a side that is none": [({"k": "back", "n": BACK, "t": 0, "u": None, "v": [["x", 0]]}, b"null")],
    "a place that is none": [({"k": "back", "n": BACK, "t": 0, "u": None, "v": [["i", -1]]}, b"null")],
    "a pass below 0": [({"k": "back", "n": BACK, "t": -1, "u": None, "v": []},)],
    "a million million passes": [({"k": "back", "n": BACK, "t": 10**12, "u": None, "v": []},)],
    "a slot far away": [({"k": "back", "n": BACK, "t": 0, "u": None, "v": [["i", 10**9]]}, b"null")],
    "a waiting slot far away": [({"k": "back", "n": BACK, "t": 0, "u": None, "w": [["i", 10**9]], "v": []},)],
    "a form of many": [({"k": "back", "n": BACK, "t": 0, "u": None, "g": [10**12, 1], "v": []},)],
    "half a value": [({"k": "save", "n": SAVED}, b'{"type":')],
    "an empty value": [({"k": "save", "n": SAVED}, b"")],
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_2)
def test_an_event_of_version_2_of_a_wrong_form_is_damage(tmp_path, case):
    journal_2(tmp_path, *WRONG_2[case])
    (verdict,) = verify(tmp_path)
    assert verdict.state == "damaged", verdict
    assert all(len(problem) <= 1000 for problem in verdict.problems)
    with pytest.raises(DamagedError, match="event of an unknown form"):
        list(open_dump(tmp_path).ranks[0].records)
    (recovery,) = recover(tmp_path)
    assert recovery.outcome == "nothing" and "event of an unknown form" in recovery.detail


@pytest.mark.parametrize(
    "head", [b"[1]", b"5", b'"k"', b"null", b"", b'{"k":1}', b'{"n":"k"}', b'{"k":"over"']
)
def test_a_frame_whose_head_is_no_object_is_skipped_and_told(tmp_path, head):
    journal(tmp_path, head + b"\n[]", b'{"k":"save","n":"x.0.debug"}\nnull', magic=MAGIC)
    (verdict,) = verify(tmp_path)
    assert verdict.state == "damaged" and "not an event at byte" in verdict.problems[0]
    assert open_dump(tmp_path).ranks[0].records.names == ("x.0.debug",)


@pytest.mark.parametrize(
    "events",
    [
        called(b"\x1an1\x1a"),
        called(b"\x1an12345678901234567890\x1a"),
        called(b"\x1an1\x1a", fill(n2=b',"Max":1')),
    ],
)
def test_a_hole_that_is_never_filled_is_told(tmp_path, events):
    journal_2(tmp_path, *events)
    (record,) = open_dump(tmp_path).ranks[0].records
    assert record.tensors[0].json["unsupported"] == "statistics: the process ended before this was written"


@pytest.mark.parametrize("form", [7, 5.0, True, "x", 10**30, {"a": 3, "b": [1.5, None]}, [[[[2]]]]])
def test_the_form_of_a_saved_value_holds_nothing(tmp_path, form):
    """A number there is no place of a value, and a float no slot that waits."""
    debug = {"k": "head", "header": {**HEAD["header"], "level": "debug"}}
    journal_2(tmp_path, (debug,), ({"k": "save", "n": SAVED, "g": [GRADIENT, form]}, b"null"))
    (verdict,) = verify(tmp_path)
    assert verdict.state == "torn", verdict.problems
    record = open_dump(tmp_path).ranks[0].records[GRADIENT].json
    assert not any(leaf is not None for _, leaf in others(record))


def test_fillers_ask_for_no_more_than_the_file_is_large(tmp_path):
    """Each of thirty fillers holds the next one twice, and nothing; one long filler stands in many places."""
    fillers = Fillers(Room(10_000))
    for i in range(30):
        fillers.add(i, b"\x1an%d\x1a" % (i + 1) * 2)
    fillers.add(30, b"")
    with pytest.raises(ValueError, match="more slots than its size allows"):
        fillers.filled(b"\x1an0\x1a", Places(-1, tmp_path))
    long = b',"long":"%b"' % (b"x" * 300_000)
    many = b"[%b]" % b",".join([TENSOR % b"\x1an1\x1a"] * 10_000)
    wide = journal_2(tmp_path, ({"k": "save", "n": SAVED}, many), fill(n1=long))
    assert probes(("verify", wide), ("recover", wide))[0] == [4, 1]


def test_passes_that_a_file_asks_for_are_few(tmp_path):
    event = {"k": "back", "n": BACK, "u": None, "v": []}
    many, fewer = (journal_2(tmp_path / str(t), ({**event, "t": t},)) for t in (4_000_000, 100_000))
    assert probes(("verify", many))[0] == [4]
    folded(read_journal(fewer / "records.journal"))
