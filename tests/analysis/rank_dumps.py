"""Write dumps: by a script that trains, alone or on several ranks, or record by record."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from forks import free_port

HERE = Path(__file__).parent


def run(script: str, *words: str) -> None:
    """Run a script beside this file in a fork of a process that has imported torch."""
    from launching import FORKS

    FORKS.run(str(HERE / script), *words)


def run_ranks(script: str, ranks: int, *words: str) -> None:
    """Run one on so many ranks, as torchrun does."""
    from launching import FORKS

    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    group |= {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    each = [{**group, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]
    FORKS.together(str(HERE / script), *words, each=each)


def tensor(**keys: Any) -> dict[str, Any]:
    numbers = {"Max": 1.25, "Min": -0.75, "Mean": 0.1, "Norm": 2.0}
    return {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4]} | numbers | keys


def write(folder: Path, rank: int | None, records: dict[str, Any], step: int = 0, /, **header: Any) -> Path:
    """Write one rank of one step, its dump.json alone; return the dump_path."""
    where = folder / f"step{step}" / ("rank" if rank is None else f"rank{rank}")
    where.mkdir(parents=True)
    document = {"task": "statistics", "level": "mix", **header, "data": records}
    (where / "dump.json").write_text(json.dumps(document))
    return folder


@contextmanager
def changed(rank: Path) -> Iterator[dict[str, Any]]:
    """Change the records in a folder of a rank, where they are."""
    file = rank / "dump.json"
    document = json.loads(file.read_text())
    yield document["data"]
    file.write_text(json.dumps(document))
