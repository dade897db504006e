"""The files of a step: names, equal bytes once, and the thread behind the run."""

import errno
import itertools
import json
import os
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from documents import tensor_bytes
from probe_format.tensors import load_pt, npy_bytes, pt_bytes
from probe_format.write.coverage import Coverage
from probe_runtime.describe import TensorOptions, equal_files, tensor_store
from probe_runtime.describe.placement import Placement
from probe_runtime.describe.step_files import StepFiles


def made(tmp_path, **options):
    events: list = []
    coverage = Coverage()
    options = TensorOptions(tmp_path, **{"share": False, **options})
    return StepFiles(options, coverage, events.append), events, coverage


def fillers(events):
    return {n: f for e in events if e[0]["k"] == "fill" for n, f in zip(e[0]["h"], e[1], strict=True)}


def member(folder, name):
    """What is told of a file that is there."""
    return b',"data_name":"%b","data_crc32":"%08x"' % (
        name.encode(),
        zlib.crc32((folder / name).read_bytes()),
    )


SLOT = Placement("Mint.add.0.forward", "input", True)


def test_names_and_bytes(tmp_path):
    files, events, _ = made(tmp_path)
    told = files.save(SLOT, (0, "x"), "npy", npy_bytes(np.arange(3)))
    assert told == member(tmp_path, "Mint.add.0.forward.input.0.x.npy") and events == []
    np.testing.assert_array_equal(np.load(tmp_path / "Mint.add.0.forward.input.0.x.npy"), np.arange(3))


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize("suffix", ["npy", "pt"])
def test_equal_bytes_are_one_file_where_that_is_wanted(tmp_path, deferred, suffix):
    def parts(a):
        return npy_bytes(a) if suffix == "npy" else pt_bytes("float64", a.shape, memoryview(a).cast("B"))

    for once in (True, False):
        files, _, _ = made(tmp_path / str(once), deferred=deferred, share=once)
        (tmp_path / str(once)).mkdir()
        late, large = np.arange(1000.0), np.arange(100_000.0)
        late[-1] = 0
        tensors = [
            np.arange(1000.0),
            np.arange(1000.0),
            late,
            np.arange(1000.0).reshape(10, 100),
            large,
            large.copy(),
        ]
        tensors.append(np.append(large[:-1], 0.0))
        for at, a in enumerate(tensors):
            files.save(SLOT, (at,), suffix, parts(a))
        files.close()
        paths = [
            tmp_path / str(once) / f"Mint.add.0.forward.input.{at}.{suffix}" for at in range(len(tensors))
        ]
        first = [
            next(i for i, p in enumerate(paths) if p.stat().st_ino == path.stat().st_ino) for path in paths
        ]
        assert first == ([0, 0, 2, 3, 4, 4, 6] if once else list(range(7)))
        assert all(path.read_bytes() == b"".join(parts(a)) for path, a in zip(paths, tensors, strict=True))


def test_a_file_that_was_replaced_lends_its_name_to_its_new_bytes_only(tmp_path):
    pytest.importorskip("torch")
    files, _, _ = made(tmp_path, share=True)
    for at, number in ((0, 1.0), (0, 2.0), (1, 1.0), (2, 2.0), (2, 2.0)):
        files.save(SLOT, (at,), "pt", pt_bytes("float64", (1,), np.array([number]).tobytes()))
    (tmp_path / "Mint.add.0.forward.input.2.pt").unlink()  # the first of such bytes is gone
    files.save(SLOT, (3,), "pt", pt_bytes("float64", (1,), np.array([2.0]).tobytes()))
    found = [float(load_pt(tmp_path / f"Mint.add.0.forward.input.{at}.pt")) for at in (0, 1, 3)]
    assert found == [2.0, 1.0, 2.0]


@pytest.mark.parametrize("once", [False, True])
def test_a_name_with_new_bytes_is_no_source_of_its_old_ones(tmp_path, once):
    files, _, _ = made(tmp_path, share=once)
    for at, array in ((0, np.zeros(2)), (1, np.zeros(2)), (0, np.ones(2)), (2, np.zeros(2))):
        files.save(SLOT, (at,), "npy", npy_bytes(array))
    loaded = [np.load(tmp_path / f"Mint.add.0.forward.input.{at}.npy")[0] for at in range(3)]
    assert loaded == [1.0, 0.0, 0.0]


def test_of_more_files_than_are_remembered_each_has_its_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(equal_files, "MOST", 2)
    files, _, _ = made(tmp_path, share=True)
    numbers = [0, 1, 0, 2, 2, 0, 1]
    for at, number in enumerate(numbers):
        files.save(SLOT, (at,), "npy", npy_bytes(np.full(3, number)))
    paths = [tmp_path / f"Mint.add.0.forward.input.{at}.npy" for at in range(len(numbers))]
    assert [np.load(path)[0] for path in paths] == numbers
    assert [path.stat().st_nlink for path in paths] == [2, 1, 2, 2, 2, 1, 1]


@pytest.mark.parametrize("links", [False, True])
def test_where_there_are_no_links_equal_bytes_are_copied(tmp_path, links, monkeypatch):
    def no_links(source, target, **folders):
        if (tmp_path / target).exists():
            raise FileExistsError(errno.EEXIST, "exists")
        raise OSError(errno.EPERM, "no links here")

    if not links:
        monkeypatch.setattr(os, "link", no_links)
    files, _, coverage = made(tmp_path, share=True)
    for at in (0, 1, 0, 1):
        files.save(SLOT, (at,), "npy", npy_bytes(np.ones(3)))
    first, second = (tmp_path / f"Mint.add.0.forward.input.{at}.npy" for at in (0, 1))
    assert first.read_bytes() == second.read_bytes() == b"".join(npy_bytes(np.ones(3)))
    assert first.samefile(second) == links
    assert not coverage.counts["failed"]


def test_behind_the_run_the_bytes_are_those_of_the_moment(tmp_path):
    files, events, _ = made(tmp_path, deferred=True)
    array = np.zeros(1000)
    for at in range(10):
        array[:] = at
        assert files.save(SLOT, (at,), "npy", npy_bytes(array)) == b"\x1af%d\x1a" % (at + 1)
    files.flush()
    names = [f"Mint.add.0.forward.input.{at}.npy" for at in range(10)]
    assert [np.load(tmp_path / name)[0] for name in names] == list(range(10))
    assert fillers(events) == {at + 1: member(tmp_path, name) for at, name in enumerate(names)}
    files.close()
    assert not [t for t in threading.enumerate() if t.name == "probe-files"]


def test_the_names_of_files_are_told_when_they_are_whole(tmp_path):
    told = []

    def append(event):
        ((_, filler),) = fillers([event]).items()
        told.append(np.load(tmp_path / json.loads(b"{" + filler[1:] + b"}")["data_name"]).shape)

    files = StepFiles(TensorOptions(tmp_path, deferred=True), Coverage(), append)
    for at in range(20):
        files.save(SLOT, (at,), "npy", npy_bytes(np.zeros(at)))
    files.close()
    assert told == [(at,) for at in range(20)]


def failing(number, at):
    """A `writev` whose call of this number fails."""
    real, calls = os.writev, itertools.count()

    def writev(fd, parts):
        if next(calls) == at:
            raise OSError(number, os.strerror(number))
        return real(fd, parts)

    return writev


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("deferred", [False, True])
def test_a_file_that_cannot_be_written_is_lost_alone_but_a_full_disk_is_raised(
    tmp_path, deferred, number, monkeypatch
):
    monkeypatch.setattr(os, "writev", failing(number, 1))
    files, events, coverage = made(tmp_path, deferred=deferred)
    told = []
    for at in range(3):
        try:
            told.append(files.save(SLOT, (at,), "npy", npy_bytes(np.zeros(2))))
        except OSError as error:
            assert error.errno == number != errno.EIO and not deferred
            told.append(b"")
    files.close()
    if deferred:
        assert told == [b"\x1af1\x1a", b"\x1af2\x1a", b"\x1af3\x1a"]
        told = [fillers(events)[n] for n in (1, 2, 3)]
    assert told[0] == member(tmp_path, "Mint.add.0.forward.input.0.npy")
    assert told[2] == member(tmp_path, "Mint.add.0.forward.input.2.npy")
    assert sorted(os.listdir(tmp_path)) == [
        "Mint.add.0.forward.input.0.npy",
        "Mint.add.0.forward.input.2.npy",
    ]
    if deferred or number == errno.EIO:
        assert told[1] == b',"lost":"tensor file: [Errno %d] %b"' % (number, os.strerror(number).encode())
        (fault,) = [head for head, _ in events if head["k"] == "fault"]
        assert "Mint.add.0.forward.input.1.npy" in fault["w"]
        assert coverage.counts["failed"] == {"tensor files": 1}
    else:
        assert not coverage.counts["failed"]


def test_an_error_without_a_number_says_what_it_says(tmp_path, monkeypatch):
    def written(*_):
        raise OSError("12 of 16 bytes were taken")

    monkeypatch.setattr(os, "writev", written)
    files, _, _ = made(tmp_path, deferred=False)
    told = files.save(SLOT, (0,), "npy", npy_bytes(np.zeros(2)))
    files.close()
    assert b"12 of 16 bytes were taken" in told and b"None" not in told


ARRAYS = [np.arange(9.0), np.zeros(2), np.arange(9.0), np.ones(200_000), np.zeros(0), np.ones(200_000)]


def saved(folder, arrays=ARRAYS, **options):
    """Save arrays into the folder of a rank; return what is there, and what is told of each."""
    (folder / "dump_tensor_data").mkdir(parents=True)
    files, events, _ = made(folder / "dump_tensor_data", **options)
    told = [files.save(SLOT, (at,), "npy", npy_bytes(array)) for at, array in enumerate(arrays)]
    files.close()
    return tensor_bytes(folder), [*fillers(events).values()] or told


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("deferred", [False, True])
def test_packed_files_have_the_names_and_bytes_of_others(tmp_path, once, deferred):
    one = saved(tmp_path / "one", share=once, deferred=deferred)
    packed = saved(tmp_path / "packed", share=once, deferred=deferred, packed=True)
    assert packed == one and len(one[0]) == len(ARRAYS)
    (pack,) = (tmp_path / "packed" / "dump_tensor_data").iterdir()
    each_once = {b"".join(npy_bytes(array)) for array in ARRAYS} if once else [*one[0].values()]
    size = sum(map(len, each_once))
    assert pack.name == "000.pack" and size < pack.stat().st_size < size + 256 * len(ARRAYS)


def test_a_full_pack_is_followed_by_another(tmp_path, monkeypatch):
    monkeypatch.setattr(tensor_store, "FULL", 1000)
    found, _ = saved(tmp_path, [np.arange(100.0) + n for n in range(4)], packed=True, share=True)
    assert [np.frombuffer(raw, "f8", 100, 128)[0] for raw in found.values()] == [0, 1, 2, 3]
    assert sorted(os.listdir(tmp_path / "dump_tensor_data")) == ["000.pack", "001.pack"]


@pytest.mark.parametrize("cuts", [True, False])
def test_half_an_entry_is_cut_off(tmp_path, monkeypatch, cuts):
    real, calls = os.writev, itertools.count()

    def writev(fd, parts):
        if next(calls) == 1:
            real(fd, [b"".join(parts)[:100]])
            raise OSError(errno.EIO, "broken")
        return real(fd, parts)

    def ftruncate(fd, size):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "writev", writev)
    if not cuts:
        monkeypatch.setattr(os, "ftruncate", ftruncate)
    found, told = saved(tmp_path, [np.zeros(50), np.ones(50), np.arange(50)], packed=True)
    assert len(found) == 2 and b"lost" in told[1]
    assert len(os.listdir(tmp_path / "dump_tensor_data")) == (1 if cuts else 2)


def test_threads_and_forked_children_share_no_place(tmp_path):
    folder = tmp_path / "dump_tensor_data"
    folder.mkdir()
    files, _, coverage = made(folder, packed=True, share=True)

    def save(first):
        for at in range(first, first + 100):
            files.save(SLOT, (at,), "npy", npy_bytes(np.full(20, at // 2)))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(save, range(0, 400, 100)))
    child = os.fork()
    if not child:
        save(400)
        os._exit(0)
    os.waitpid(child, 0)
    save(500)
    files.close()
    found = tensor_bytes(tmp_path)
    for at in range(600):
        assert found[f"Mint.add.0.forward.input.{at}.npy"] == b"".join(npy_bytes(np.full(20, at // 2)))
    assert sorted(os.listdir(folder)) == ["000.pack", "001.pack"] and not coverage.counts["failed"]
