"""A changed parameter is named by its name in the model, whatever function is the first to get it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
import probe_analysis
import torch
from dumped_steps import dumped
from torch import nn
from torch.nn import functional as F


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Parameter(torch.linspace(0.5, 1.5, 8))

    def forward(self, x):
        return x * self.gate


class Head(nn.Module):
    """A module of its own whose weight goes through a function before it is used."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))

    def forward(self, x):
        return F.linear(x, self.weight.tanh())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(16, 8)
        self.norm, self.scale, self.batch, self.head = nn.LayerNorm(8), Scale(), nn.BatchNorm1d(8), Head()
        self.out = nn.Linear(8, 16, bias=False)
        self.out.weight = self.token.weight  # tied
        self.lstm = nn.LSTM(8, 8, batch_first=True)

    def forward(self, tokens):
        x = self.scale(self.norm(self.token(tokens)))
        x = self.batch(x.transpose(1, 2)).transpose(1, 2)
        return self.out(self.lstm(self.head(x))[0])


CHANGES = {
    "norm.weight": "Module.norm.LayerNorm.forward.0 has other parameters: norm.weight ",
    "norm.bias": "Module.norm.LayerNorm.forward.0 has other parameters: norm.bias ",
    "token.weight": "Module.token.Embedding.forward.0 has other parameters: token.weight ",
    "scale.gate": "Module.scale.Scale.forward.0 has other parameters: scale.gate ",
    "batch.weight": "Module.batch.BatchNorm1d.forward.0 has other parameters: batch.weight ",
    "batch.running_mean": "Module.batch.BatchNorm1d.forward.0 has other buffers: batch.running_mean ",
    "head.weight": "Module.head.Head.forward.0 has other parameters: head.weight ",
    "out.weight": "Module.out.Linear.forward.0 has other parameters: out.weight ",
    "lstm.weight_hh_l0": "Module.lstm.LSTM.forward.0 has other parameters: lstm.weight_hh_l0 ",
}


def run(folder: Path, change: str = "") -> Path:
    torch.manual_seed(0)
    net = Net()
    if change == "out.weight":
        net.out.weight = nn.Parameter(net.out.weight.detach().clone())  # tied no more
    owner, _, name = change.rpartition(".")
    with torch.no_grad():
        if change:
            getattr(net.get_submodule(owner), name).mul_(1.01).add_(0.5)
    tokens = torch.arange(32).remainder(16).reshape(4, 8)
    return dumped(folder, lambda _: net(tokens).square().mean().backward(), net)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("good"))


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_parameter_is_named_by_its_module(change, good, tmp_path):
    found = probe_analysis.diff(good, run(tmp_path, change))
    assert CHANGES[change] in found.verdict.sentence
    assert found.runs[0].first(backward=False).cause == "parameters"
    assert found.verdict.call.path == change.rpartition(".")[0]


class Table(nn.Module):
    """Hold a table that is made when the network is, and numbers that it writes itself."""

    def __init__(self, factor: float):
        super().__init__()
        self.register_buffer("table", factor * torch.linspace(0.1, 1.0, 8), persistent=False)
        self.register_buffer("seen", torch.zeros(8))

    def forward(self, x):
        self.seen.mul_(0.9).add_(x.detach().mean(0))
        return x + 1e-7 * self.table * self.seen


def turned(folder: Path, factor: float, moved: float = 0.0, steps: int = 1) -> probe_analysis.Diff:
    for name, each, shift in (("a", 1.0, 0.0), ("b", factor, moved)):
        net, x = nn.Sequential(Table(each)), torch.linspace(1.0, 2.0, 32).reshape(4, 8)
        dumped(folder / name, lambda _, net=net, x=x + shift: net(net(x)), net, steps, level="L0")
    return probe_analysis.diff(folder / "a", folder / "b")


def test_a_buffer_is_named_though_what_it_changes_is_too_small(tmp_path):
    found = turned(tmp_path, 1.02)
    assert "Module.0.Table.forward.0 has other buffers: 0.table " in found.verdict.sentence


def test_what_calls_have_written_into_a_buffer_is_no_cause(tmp_path):
    assert turned(tmp_path, 1.0, moved=2e-7, steps=2).verdict.state == "within tolerance"
