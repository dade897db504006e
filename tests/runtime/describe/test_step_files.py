"""The files of a step: names, equal bytes once, and the thread behind the run."""

import os
import threading

import numpy as np
import pytest
from probe_format.tensors.files import load_pt, npy_bytes, pt_bytes
from probe_format.write.coverage import Coverage
from probe_runtime.describe.leaf import Placement
from probe_runtime.describe.step_files import StepFiles


def made(tmp_path, **options):
    events: list[dict] = []
    coverage = Coverage()
    return StepFiles(tmp_path, coverage, events.append, **options), events, coverage


SLOT = Placement("Mint.add.0.forward", "input", True)


def test_names_and_bytes(tmp_path):
    files, events, _ = made(tmp_path)
    keys = files.save(SLOT, (0, "x"), "npy", npy_bytes(np.arange(3)))
    assert keys == {"data_name": "Mint.add.0.forward.input.0.x.npy"} and events == []
    np.testing.assert_array_equal(np.load(tmp_path / keys["data_name"]), np.arange(3))


@pytest.mark.parametrize("deferred", [False, True])
def test_equal_content_is_one_file_with_two_names(tmp_path, deferred):
    files, _, _ = made(tmp_path, deferred=deferred)
    parts = npy_bytes(np.arange(3))
    for at, content in ((0, "a"), (1, "a"), (2, "b"), (3, None), (4, None)):
        files.save(SLOT, (at,), "npy", parts, content)
    files.close()
    inodes = [os.stat(tmp_path / f"Mint.add.0.forward.input.{at}.npy").st_ino for at in range(5)]
    assert inodes[0] == inodes[1] and len(set(inodes)) == 4


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize("suffix", ["npy", "pt"])
def test_equal_bytes_are_one_file_where_that_is_wanted(tmp_path, deferred, suffix):
    def parts(a):
        return npy_bytes(a) if suffix == "npy" else pt_bytes("float64", a.shape, memoryview(a).cast("B"))

    for once in (True, False):
        files, _, _ = made(tmp_path / str(once), deferred=deferred, once=once)
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
            files.save(SLOT, (at,), suffix, parts(a), at)
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
    files, _, _ = made(tmp_path, once=True)
    for at, number in ((0, 1.0), (0, 2.0), (1, 1.0), (2, 2.0), (2, 2.0)):
        files.save(SLOT, (at,), "pt", pt_bytes("float64", (1,), np.array([number]).tobytes()))
    (tmp_path / "Mint.add.0.forward.input.2.pt").unlink()  # the first of such bytes is gone
    files.save(SLOT, (3,), "pt", pt_bytes("float64", (1,), np.array([2.0]).tobytes()))
    found = [float(load_pt(tmp_path / f"Mint.add.0.forward.input.{at}.pt")) for at in (0, 1, 3)]
    assert found == [2.0, 1.0, 2.0]


def test_a_name_with_new_bytes_is_no_source_of_its_old_ones(tmp_path):
    files, _, _ = made(tmp_path)
    files.save(SLOT, (0,), "npy", npy_bytes(np.zeros(2)), "zeros")
    files.save(SLOT, (1,), "npy", npy_bytes(np.zeros(2)), "zeros")
    files.save(SLOT, (0,), "npy", npy_bytes(np.ones(2)), "ones")
    files.save(SLOT, (2,), "npy", npy_bytes(np.zeros(2)), "zeros")
    loaded = [np.load(tmp_path / f"Mint.add.0.forward.input.{at}.npy")[0] for at in range(3)]
    assert loaded == [1.0, 0.0, 0.0]


def test_behind_the_run_the_bytes_are_those_of_the_moment(tmp_path):
    files, events, _ = made(tmp_path, deferred=True)
    array = np.zeros(1000)
    for at in range(10):
        array[:] = at
        keys = files.save(SLOT, (at,), "npy", npy_bytes(array))
        assert keys["$f"] == at + 1
    files.flush()
    assert [np.load(tmp_path / f"Mint.add.0.forward.input.{at}.npy")[0] for at in range(10)] == list(
        range(10)
    )
    assert sorted(r for e in events for r in e["r"]) == list(range(1, 11))
    files.close()
    assert not [t for t in threading.enumerate() if t.name == "probe-files"]


def test_what_cannot_be_written_behind_the_run_is_told(tmp_path):
    files, events, coverage = made(tmp_path / "absent", deferred=True)
    files.save(SLOT, (0,), "npy", npy_bytes(np.zeros(2)))
    files.close()
    (fault,) = events
    assert fault["k"] == "fault" and "Mint.add.0.forward.input.0.npy" in fault["w"]
    assert coverage.counts["failed"] == {"tensor files": 1}


def test_what_cannot_be_written_at_once_raises(tmp_path):
    files, _, _ = made(tmp_path / "absent")
    with pytest.raises(OSError):
        files.save(SLOT, (0,), "npy", npy_bytes(np.zeros(2)), "zeros")
