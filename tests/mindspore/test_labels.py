"""Labels of requests in flight."""

from __future__ import annotations

from pathlib import Path

import mindspore as ms
from contract_labels import *  # noqa: F403  the tests that both frameworks have
from mindspore import Tensor, nn
from mindspore_dumping import opened, records


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.Tanh()

    @ms.jit
    def construct(self, x):
        return self.act(x)


def test_what_runs_in_a_compiled_graph_has_the_label_of_its_call(tmp_path: Path) -> None:
    net = nn.SequentialCell(Net())
    with opened(tmp_path, level="mix") as debugger:
        debugger.start(net)
        for rows in (1, 2):
            with debugger.label(f"req-{rows}"):
                net(Tensor([[1.0, 2.0]] * rows))
        debugger.stop()
        debugger.step()
    found = records(tmp_path / "dump" / "graph")
    labels = [
        (r["input_args"][0]["shape"][0], r["label"]) for name, r in found.items() if "Tanh.forward" in name
    ]
    assert labels == [(1, "req-1"), (2, "req-2")]
