"""Packs of tensor files: what is whole is found, and what is torn or changed never gives a wrong tensor."""

import os
import zlib

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from probe_format.errors import DamagedError, FormatError
from probe_format.names import safe_file_name, tensor_file_name
from probe_format.tensors import entries, entry_head, load_npy, map_npy, npy_bytes, opened


def pack(*files):
    """The bytes of a pack. files: (name, content), or (name, another name)."""
    raw, crcs = bytearray(), {}
    for name, content in files:
        again = isinstance(content, str)
        crcs[name] = crcs[content] if again else zlib.crc32(content)
        content = content.encode() if again else content
        raw += entry_head(len(raw), name, len(content), crcs[name], again=again) + content
    return bytes(raw)


def npy(*values):
    return b"".join(npy_bytes(np.array(values)))


FILES = [
    ("a.npy", npy(1.0, 2.0)),
    ("b.npy", "a.npy"),
    ("a.npy", npy(3)),
    ("c.npy", npy(*range(99))),
    ("d.npy", "a.npy"),
]
WHOLE = {"a.npy": FILES[2][1], "b.npy": FILES[0][1], "c.npy": FILES[3][1], "d.npy": FILES[2][1]}


def content(entry):
    with opened(entry) as file:
        return file.read()


def test_entries_are_found_by_their_names(tmp_path):
    (tmp_path / "000.pack").write_bytes(pack(*FILES))
    (tmp_path / "notes.pack").write_bytes(b"not one")
    found = entries(tmp_path)
    assert {name: content(entry) for name, entry in found.items()} == WHOLE
    assert all(entry.start % 64 == 0 and entry.name == name for name, entry in found.items())
    assert load_npy(found["b.npy"]).tolist() == map_npy(found["b.npy"]).tolist() == [1.0, 2.0]
    for entry in found.values():
        entry.check(f"{zlib.crc32(content(entry)):08x}")
    with pytest.raises(DamagedError, match="was '00000000'"):
        found["a.npy"].check("00000000")
    assert entries(tmp_path / "none") == {}


def test_a_later_pack_counts_and_numbers_are_numbers(tmp_path):
    for number, value in (("999", 1), ("1000", 2), ("000", 3)):
        (tmp_path / f"{number}.pack").write_bytes(pack(("a.npy", npy(value))))
    assert load_npy(entries(tmp_path)["a.npy"]) == [2]


def test_a_link_is_no_pack(tmp_path):
    (tmp_path / "elsewhere").write_bytes(pack(*FILES))
    (tmp_path / "000.pack").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FormatError, match="is a link"):
        entries(tmp_path)


def test_a_pipe_is_no_pack_and_is_not_waited_for(tmp_path):
    (tmp_path / "000.pack").write_bytes(pack(*FILES))
    os.mkfifo(tmp_path / "001.pack")
    assert entries(tmp_path).keys() == WHOLE.keys()


@pytest.mark.parametrize("name", ["../a.npy", "/a.npy", ".npy", "a", "a.txt", "a\0.npy"])
def test_a_name_that_leads_elsewhere_is_no_entry(tmp_path, name):
    (tmp_path / "000.pack").write_bytes(pack((name, npy(1)), ("b.npy", npy(2))))
    assert list(entries(tmp_path)) == ["b.npy"]


@pytest.mark.parametrize("suffix", [".pt", ".npy"])
@pytest.mark.parametrize("shared", [False, True])
def test_a_name_of_the_most_bytes_is_an_entry(tmp_path, suffix, shared):
    name, longer = "x" * (255 - len(suffix)) + suffix, "y" * (256 - len(suffix)) + suffix
    files = [(name, npy(1)), (longer, npy(3)), ("b.npy", name if shared else npy(2))]
    (tmp_path / "000.pack").write_bytes(pack(*files))
    found = entries(tmp_path)
    assert {each: content(entry) for each, entry in found.items()} == {
        name: npy(1),
        "b.npy": npy(1) if shared else npy(2),
    }


@given(st.text(min_size=1, max_size=300), st.sampled_from(["pt", "npy"]), st.booleans())
@example("é" + "x" * 300, "pt", False)
@example("x" * 300, "npy", True)
def test_every_name_that_a_tensor_file_gets_is_an_entry(tmp_path_factory, text, suffix, shared):
    folder = tmp_path_factory.mktemp("pack")
    name = safe_file_name(f"{text}.{suffix}")
    first = tensor_file_name(text, "input", [0], suffix)
    (folder / "000.pack").write_bytes(pack((first, npy(1)), (name, first if shared else npy(2))))
    found = {each: content(entry) for each, entry in entries(folder).items()}
    assert found == {first: npy(1), name: npy(1) if shared else npy(2)}


def ends():
    """Where each entry ends, and the name that it gives a content."""
    return [(len(pack(*FILES[: n + 1])), name) for n, (name, _) in enumerate(FILES)]


def usable(folder):
    """What a reader may use: name -> content."""
    found = {}
    for name, entry in entries(folder).items():
        try:
            entry.check()
        except DamagedError:
            continue
        found[name] = content(entry)
    return found


@given(st.integers(0, len(pack(*FILES))))
def test_a_pack_that_is_cut_short_has_all_that_were_whole(tmp_path_factory, length):
    folder = tmp_path_factory.mktemp("pack")
    (folder / "000.pack").write_bytes(pack(*FILES)[:length])
    true = {}
    for (end, name), (_, given_content) in zip(ends(), FILES, strict=True):
        if end <= length:
            true[name] = true[given_content] if isinstance(given_content, str) else given_content
    assert usable(folder) == true


@given(st.integers(0, len(pack(*FILES)) - 1), st.integers(1, 255), st.integers(0, 3))
def test_a_changed_byte_gives_no_wrong_tensor_and_costs_none_before_it(tmp_path_factory, at, bits, later):
    folder = tmp_path_factory.mktemp("pack")
    raw = bytearray(pack(*FILES))
    raw[at] ^= bits
    (folder / "000.pack").write_bytes(raw)
    (folder / "001.pack").write_bytes(pack(*[(f"{i}.npy", npy(i)) for i in range(later)]))
    found = usable(folder)
    contents = {name: {WHOLE[name]} for name in WHOLE}
    contents["a.npy"].add(FILES[0][1])  # what it was before: its record's data_crc32 tells
    for name, raw_content in found.items():
        assert raw_content in contents.get(name, {npy(int(name[0]))} if name[0].isdigit() else set())
    before = {name for end, name in ends() if end <= at}
    assert before - found.keys() <= {FILES[n][0] for n, (end, _) in enumerate(ends()) if end > at}
    assert {f"{i}.npy" for i in range(later)} <= found.keys()


@given(st.binary(max_size=2000), st.integers(0, 5))
def test_any_bytes_are_read_to_their_end(tmp_path_factory, noise, number):
    """After any bytes an entry is found again, where its own place among them is right."""
    folder = tmp_path_factory.mktemp("pack")
    at = len(noise)
    (folder / "000.pack").write_bytes(
        noise + entry_head(at, "a.npy", 8, zlib.crc32(bytes(8))) + bytes(8) + noise[:number]
    )
    assert content(entries(folder)["a.npy"]) == bytes(8)
