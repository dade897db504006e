"""A run that was killed before the first record of a step: no error, and every command says so."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import mutants
import probe_format
import pytest
from probe_format.cli.main import main
from probe_format.journal import MAGIC, JournalWriter
from probe_format.journal.events import fault, head
from probe_format.read import verify

CORPUS = Path(__file__).parents[1] / "format" / "corpus" / "probe" / "complete"
SAYS = "empty: the run ended before its first record"


def begun(rank: Path, *events: object) -> None:
    journal = JournalWriter(rank / "records.journal", lambda *_: None)
    for event in events:
        journal.append(event)
    journal.close()


#: What such a run may have left.
LEFT = {
    "folder": lambda rank: (rank / "dump_tensor_data").mkdir(),
    "files": lambda rank: (rank / "dump.json").touch(),
    "no byte": lambda rank: (rank / "records.journal").touch(),
    "half a mark": lambda rank: (rank / "records.journal").write_bytes(MAGIC[:4]),
    "mark": lambda rank: (rank / "records.journal").write_bytes(MAGIC),
    "half a head": lambda rank: (rank / "records.journal").write_bytes(MAGIC + b"\x20\0\0\0ab"),
    "head": lambda rank: begun(rank, head({"task": "statistics", "level": "L1", "framework": "pytorch"})),
}


@pytest.fixture(params=LEFT)
def dump(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A dump whose second step is empty."""
    shutil.copytree(CORPUS, tmp_path / "dump")
    rank = tmp_path / "dump" / "step1" / "rank"
    rank.mkdir(parents=True)
    LEFT[request.param](rank)
    return tmp_path / "dump"


def test_an_empty_step_has_no_records_and_does_not_stop_the_readers(dump: Path) -> None:
    one, two = probe_format.open(dump).ranks
    assert (one.is_empty, two.is_empty) == (False, True)
    assert len(one.records) == 8
    assert (list(two.records), dict(two.stack.groups), dict(two.construct.parents)) == ([], {}, {})
    assert [verdict.state for verdict in verify(dump)] == ["complete", "empty"]


def test_every_command_passes_over_an_empty_step_and_says_so(
    dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, use in mutants.uses(str(CORPUS), str(dump), tmp_path).items():
        code = use()
        said = capsys.readouterr()
        if name in ("ranks", "recover") or "(" in name or name.startswith("diff"):
            continue  # one rank alone; nothing to recover; no command; a step that only one of the dumps has
        if name == "check" and find_spec("torch") is None:
            assert code == 2  # nothing replays it
            continue
        assert code == (1 if name == "nan" else 0), (name, said)
        assert SAYS in said.out or name.startswith("report"), (name, said)
    assert main(["verify", str(dump)]) == 0
    assert main(["diff", str(dump), str(dump)]) == 0
    assert f"in the first run: {SAYS}" in capsys.readouterr().out


def test_what_was_recorded_or_is_damaged_is_not_empty(tmp_path: Path) -> None:
    rank = tmp_path / "step0" / "rank"
    rank.mkdir(parents=True)
    begun(rank, head({}), fault("here", "it failed"))
    assert [verdict.state for verdict in verify(tmp_path)] == ["torn"]
    (rank / "records.journal").write_bytes(MAGIC + b"\x01\0\0\0abcdefgh" * 3)
    assert [verdict.state for verdict in verify(tmp_path)] == ["damaged"]
    (rank / "records.journal").unlink()
    (rank / "stack.json").write_text("{}")
    assert [verdict.state for verdict in verify(tmp_path)] == ["damaged"]
