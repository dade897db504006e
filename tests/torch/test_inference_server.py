"""The server of docs/inference.md under load: the labels of requests are never mixed, and answers are the model's."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from urllib.request import Request, urlopen

import probe_format
import pytest
import torch
from blocks import blocks_of
from launching import FORKS
from torch import nn
from walkthroughs import ROOT

GOOD, CLIENTS = 60, 12
(SERVER,) = (block.text for block in blocks_of(ROOT / "docs/inference.md") if block.file == "server.py")


def post(address: str, body: bytes, label: str) -> list[list[float]]:
    with urlopen(Request(address, body, {"X-Request-Id": label}), timeout=60) as answer:
        return json.load(answer)  # type: ignore[no-any-return]


def rows_of(number: int) -> list[list[float]]:
    return [[number / 7] * 4] * (number % 9 + 1)


def test_labels_of_concurrent_requests_are_never_mixed(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    server = FORKS.talk("server.py", str(GOOD + 2), cwd=tmp_path)
    try:
        address = server.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:")
        with ThreadPoolExecutor(CLIENTS) as clients:
            answers = clients.map(
                lambda n: post(address, json.dumps(rows_of(n)).encode(), f"req-{n}"), range(GOOD)
            )
            with pytest.raises(OSError):  # refused, in the middle of the others
                post(address, b"[" + b" " * 100_000 + b"]", "too long")
            with pytest.raises((HTTPException, OSError)):  # the handler raises, in its own thread
                post(address, b"no json", "broken")
            found = list(answers)
        _, said = server.communicate()
    finally:
        server.kill()
    assert server.code == 0, said
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.GELU(), nn.Linear(16, 2)).eval()
    with torch.inference_mode():
        assert found == [model(torch.tensor(rows_of(n))).tolist() for n in range(GOOD)]
    (rank,) = probe_format.open(tmp_path / "dump").ranks
    labels = {f"req-{n}" for n in range(GOOD)}
    assert set(rank.labels) == labels and len(rank.labels) == GOOD
    assert rank.report is not None and rank.report.state == "complete" and not rank.report.faults
    of: dict[str | None, list[str]] = {}
    for record in rank.records:
        of.setdefault(record.label, []).append(record.name)
        if record.name.startswith("Module.0."):
            given, number = record.tensor("input_args.0"), int(str(record.label).removeprefix("req-"))
            assert given.shape == (number % 9 + 1, 4)
            assert given.max == given.min == torch.tensor(number / 7).item()
    assert set(of) == labels
    assert {len(names) for names in of.values()} == {6}, "three modules and their functions"
