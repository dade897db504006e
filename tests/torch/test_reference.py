"""What msprobe records for a network, we record under the same names and numbers."""

from __future__ import annotations

from pathlib import Path

import torch
from dumping import dumped, records
from reference_models import Llama

NAMES = Path(__file__).with_name("msprobe_llama_names.txt")


def test_our_names_contain_those_of_msprobe(tmp_path: Path) -> None:
    lines = NAMES.read_text().splitlines()
    theirs = {
        line.replace("parameters_grad.0", "parameters_grad") for line in lines if not line.startswith("#")
    }
    torch.manual_seed(0)
    model = Llama()
    ids = torch.randint(0, 64, (2, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with dumped(tmp_path, model, level="mix"):
        model(ids, ids.roll(-1, 1)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    ours = records(tmp_path / "dump").keys()
    assert len(theirs) > 300
    assert theirs <= set(ours), sorted(theirs - set(ours))
