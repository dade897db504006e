"""`probe export --follow`: what has ended becomes tables, once, and the reports say so; no change of theirs is lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import fsspec
import plain_dump
import pyarrow.dataset as ds
import pytest
from probe_analysis.cli.export import main
from probe_analysis.export import follow
from probe_analysis.export.columns import TABLES
from probe_analysis.export.follow import DumpFollower
from probe_analysis.export.store import Store
from probe_format.cli.main import main as probe
from probe_format.read.verify import verify
from probe_format.write import amend_report, discard

CORPUS = Path(__file__).parents[1] / "format" / "corpus" / "probe"


def put(dump: Path, step: int, case: str = "complete", rank: str = "rank") -> Path:
    """A rank of a step, as one of the corpus."""
    folder = dump / f"step{step}" / rank
    shutil.copytree(next((CORPUS / case).glob("step*/*")), folder)
    return folder


def told(folder: Path) -> Any:
    return json.loads((folder / "report.json").read_bytes()).get("export")


def written(to: Path, table: str = "runs") -> list[str]:
    if not (to / table).exists():
        return []
    return sorted(ds.dataset(to / table, partitioning="hive").to_table(["run"])["run"].to_pylist())


class Following:
    """A follower of a dump path, and its tables."""

    def __init__(self, path: Path, **keys: Any) -> None:
        self.dump, self.to = path / "dump", path / "tables"
        self.follower = DumpFollower(self.dump, Store(str(self.to)), **keys)

    def look(self, *ended: Path) -> list[str]:
        self.follower.look([*ended, *self.follower.found()])
        return written(self.to)


@pytest.fixture
def following(tmp_path: Path) -> Following:
    return Following(tmp_path)


def test_what_has_ended_is_written_once(following: Following) -> None:
    first = put(following.dump, 0)
    for step, case in enumerate(("open", "torn", "recovered"), 1):
        put(following.dump, step, case)
    (following.dump / "step9" / "rank").mkdir(parents=True)
    assert following.look() == ["step0/rank"]
    assert told(first) == {"to": str(following.to), "why": None}
    assert [each.state for each in verify(first)] == ["complete"]
    files = {file: file.stat().st_mtime_ns for file in following.to.rglob("*.parquet")}
    assert {file.relative_to(following.to).parts[0] for file in files} == {*TABLES}
    put(following.dump, 5, rank="rank3")
    assert following.look() == ["step0/rank", "step5/rank3"]
    assert all(file.stat().st_mtime_ns == at for file, at in files.items())
    other = Following(following.dump.parent)  # to which all is there
    assert other.look() == ["step0/rank", "step5/rank3"]
    assert all(file.stat().st_mtime_ns == at for file, at in files.items())
    assert not list((following.to / ".writing").iterdir())


def test_what_is_told_and_found_is_written_once(
    following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is there may be read just now: it is not replaced by the same one."""
    folder, names, put_file = put(following.dump, 0), [], Store.put
    monkeypatch.setattr(
        Store, "put", lambda self, file, name: (names.append(name), put_file(self, file, name))
    )
    assert following.follower.follow(lambda seconds: ([folder], True))
    assert written(following.to) == ["step0/rank"] and len(names) == len(set(names)) == 4


def test_the_tables_are_those_of_an_export(following: Following, tmp_path: Path) -> None:
    put(following.dump, 0)
    put(following.dump, 1, "debug_complete")
    assert main([str(following.dump), "-o", str(tmp_path / "once")]) == 0
    following.look()
    once, followed = (
        {file.relative_to(folder): file.read_bytes() for file in folder.rglob("*.parquet")}
        for folder in (tmp_path / "once", following.to)
    )
    assert once == followed and len(once) == 8


def test_a_process_follows_its_own_folders(tmp_path: Path) -> None:
    """Not those of other ranks, nor what an earlier run left under its name."""
    following = Following(tmp_path, folder="rank1")
    mine, other, earlier = (
        put(following.dump, step, rank=rank) for step, rank in ((0, "rank1"), (0, "rank2"), (1, "rank1"))
    )
    for folder in (mine, other):
        amend_report(folder, lambda report: report["header"].update(export=str(following.to)))
    assert following.look() == ["step0/rank1"]
    assert told(other) is told(earlier) is None


@pytest.mark.parametrize(("keys", "count"), [({"step": 1}, 2), ({"rank": 1}, 2), ({"step": 0, "rank": 0}, 1)])
def test_a_step_and_a_rank_can_be_chosen(tmp_path: Path, keys: dict[str, int], count: int) -> None:
    following = Following(tmp_path, **keys)
    for step in range(2):
        for rank in range(2):
            put(following.dump, step, rank=f"rank{rank}")
    assert len(following.look()) == count


def test_a_store_in_trouble_is_tried_again(
    following: Following, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    folders = [put(following.dump, step) for step in range(3)]
    following.to.write_text("a file is in the way")
    for _ in range(3):
        following.follower.again = 0.0
        assert following.look() == []
    error = capsys.readouterr().err
    assert error.count("probe export: ") == 1 and "step0/rank cannot be written to" in error
    assert all("File" in told(folder)["why"] or "Director" in told(folder)["why"] for folder in folders)
    probe(["show", str(folders[0]), "--brief"])
    assert f"not exported to {following.to}" in capsys.readouterr().out
    following.to.unlink()
    following.look()
    assert not following.to.exists(), "it waits a moment before it tries again"
    following.follower.again = 0.0
    assert following.look() == ["step0/rank", "step1/rank", "step2/rank"]
    assert {told(folder)["why"] for folder in folders} == {None}


def test_what_cannot_be_made_into_tables_holds_nothing_up(
    following: Following, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    write = follow.write_tables
    monkeypatch.setattr(follow, "write_tables", lambda runs, *more: _refused(write, list(runs), *more))
    bad, good = put(following.dump, 0), put(following.dump, 1)
    for _ in range(3):
        following.follower.again = 0.0
        following.look()
    assert told(bad)["why"] == "ValueError: no such table" and told(good)["why"] is None
    assert capsys.readouterr().err.count("no such table") == 1


def _refused(write: Any, runs: list[Any], *more: Any) -> None:
    if runs[0].rank.step == 0:
        raise ValueError("no such table")
    write(runs, *more)


def test_tables_larger_than_the_json_are_not_written(
    following: Following, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(follow, "SMALLEST_TABLES", 1)
    folder = put(following.dump, 0)
    assert following.look() == following.look() == []
    assert "are the most" in told(folder)["why"]
    assert capsys.readouterr().err.count("step0/rank is not exported: its tables would take") == 1


def test_what_was_removed_before_is_said_once(following: Following, capsys: Any) -> None:
    gone = [following.dump / f"step{step}" / "rank" for step in range(3)]
    assert following.look(*gone) == []
    folder = put(following.dump, 5)
    following.follower.again = time.monotonic() + 60
    following.look()
    shutil.rmtree(folder)
    following.follower.again = 0.0
    assert following.look() == []
    assert capsys.readouterr().err.count("was removed before it was exported") == 1


def test_changes_of_a_report_by_several_are_all_there(tmp_path: Path) -> None:
    folder = put(tmp_path, 0)

    def change(name: str) -> None:
        for _ in range(25):
            amend_report(
                folder, lambda report: report.setdefault("triggers", []).append({"when": name, "why": ""})
            )

    threads = [threading.Thread(target=change, args=(f"{n}",)) for n in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(json.loads((folder / "report.json").read_bytes())["triggers"]) == 100


def test_a_step_is_removed_while_its_report_changes(tmp_path: Path) -> None:
    """As `keep` does it: nothing is left, whatever the moment."""
    for n in range(50):
        folder = put(tmp_path / str(n), 0)
        at = os.stat(folder)

        def change(folder: Path = folder) -> None:
            try:
                while True:
                    amend_report(folder, lambda report: report.update(export={"to": "x", "why": None}))
                    time.sleep(0.0002)
            except OSError:
                pass

        thread = threading.Thread(target=change)
        thread.start()
        time.sleep(0.0001 * n)
        discard(folder, (at.st_dev, at.st_ino))
        thread.join()
        assert not list((tmp_path / str(n)).rglob("*"))


def test_the_command_follows_until_it_is_stopped(tmp_path: Path) -> None:
    dump, to = tmp_path / "dump", tmp_path / "tables"
    put(dump, 0)
    code = "from probe_analysis.export import follow; follow._EVERY = 0.2; import probe_format.__main__"
    command = [sys.executable, "-c", code, "export", str(dump), "-o", str(to), "--follow"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL
    )
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == "step0/rank: 16 tensors\n"
    put(dump, 1)
    assert process.stdout.readline() == "step1/rank: 16 tensors\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130 and "stopped" in process.stderr.read()
    assert written(to) == ["step0/rank", "step1/rank"]


def test_what_will_never_end_is_said_once(following: Following, capsys: Any) -> None:
    for step, case in enumerate(("recovered", "recovered", "torn", "open")):
        put(following.dump, step, case)
    plain_dump.put(following.dump / "step4" / "rank", {}, level="L1")
    assert following.look() == []
    for _ in range(2):
        put(following.dump, 5)
        assert following.look() == ["step5/rank"]
        shutil.rmtree(following.dump / "step5")
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(": it is passed over, and so are others like it.")[0] for line in said] == [
        "probe export: step0/rank was killed, and recovered",
        "probe export: step2/rank has not ended, though a later step is there",
        "probe export: step4/rank has no report.json that says that it ended, as msprobe's dumps have none",
    ]


def test_a_store_that_renames_over_nothing(tmp_path: Path) -> None:
    """As HDFS does: a file that is there is removed first."""
    store, memory = Store("memory://run/tables"), fsspec.filesystem("memory")
    for content in (b"one", b"two"):
        (tmp_path / "file").write_bytes(content)
        store.put(tmp_path / "file", "runs/step=0/rank=0/rank.parquet")
        assert memory.find("/run") == ["/run/tables/runs/step=0/rank=0/rank.parquet"]
        assert memory.cat_file("/run/tables/runs/step=0/rank=0/rank.parquet") == content


def test_only_a_follower_takes_an_address(tmp_path: Path, capsys: Any) -> None:
    dump = str(put(tmp_path, 0))
    assert main([dump, "-o", "s3://bucket/run"]) == 2
    assert "--follow" in capsys.readouterr().err
    assert main([dump, "-o", str(tmp_path / "x"), "--to", "tensorboard", "--follow"]) == 2
    assert "--follow writes Parquet" in capsys.readouterr().err


def test_what_a_report_says_is_there_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables may be removed, and a relative address is another place in another folder."""
    following = Following(tmp_path)
    folder = put(following.dump, 0)
    following.follower.store = Store("tables")
    monkeypatch.chdir(tmp_path)
    assert following.look() == ["step0/rank"]
    shutil.rmtree(following.to)
    for place in (tmp_path, tmp_path / "elsewhere"):
        place.mkdir(exist_ok=True)
        monkeypatch.chdir(place)
        assert told(folder) == {"to": "tables", "why": None}
        follower = DumpFollower(following.dump, Store("tables"))
        follower.look(follower.found())
        assert written(place / "tables") == ["step0/rank"]


def test_records_that_a_filter_left_out_come_without_it(tmp_path: Path) -> None:
    counts = []
    for filter in ("no such record", "no such record", ""):
        following = Following(tmp_path, filter=filter)
        if not counts:
            put(following.dump, 0)
        following.look()
        counts.append(ds.dataset(following.to / "records").count_rows())
    assert counts[0] == counts[1] == 0 < counts[2]


def test_a_later_run_in_the_same_folders_is_written_too(following: Following) -> None:
    """Also beside a follower of another address: each writes a step once."""
    other = DumpFollower(following.dump, Store(str(following.dump.parent / "others")))
    for case in ("debug_complete", "complete"):
        for step in (0, 1):
            shutil.rmtree(following.dump / f"step{step}", ignore_errors=True)
            folder = put(following.dump, step, case)
        seen = []
        for _ in range(3):
            assert following.look() == ["step0/rank", "step1/rank"]
            other.look(other.found())
            seen.append({file: file.stat().st_mtime_ns for file in following.to.rglob("*.parquet")})
        assert seen[0] == seen[1] == seen[2]
        records = ds.dataset(following.to / "records", partitioning="hive").to_table(["record"])
        (document,) = (*folder.glob("dump.json"), *folder.glob("debug.json"))
        names = json.loads(document.read_bytes())["data"]
        assert set(names) <= set(records["record"].to_pylist())


def test_steps_are_written_in_their_order(following: Following) -> None:
    folders = [put(following.dump, step) for step in (10, 9, 2)]
    assert following.follower.found() == folders[::-1]
