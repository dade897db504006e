"""Runs that were recorded or wrapped in other ways: what one of them lacks is a finding where it means something."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
import probe_analysis
import torch
from dumped_steps import dumped
from probe_analysis.cli.diff import main
from torch import nn


class Net(nn.Module):
    def __init__(self, eps: float = 1e-5, tied: bool = True):
        super().__init__()
        self.token, self.norm = nn.Embedding(9, 4), nn.LayerNorm(4, eps)
        self.place = nn.Parameter(torch.randn(4))
        self.out = nn.Linear(4, 9, bias=False)
        self.out.weight = self.token.weight if tied else nn.Parameter(self.token.weight.detach().clone())

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.out(self.norm(self.token(tokens) + self.place))


class Wrapper(nn.Module):
    """As DDP names what is inside of it."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        return self.module(*given)


def run(
    folder: Path, wrap: Callable[[nn.Module], nn.Module] = lambda net: net, tokens: int = 9, **how: Any
) -> Path:
    made = {key: how.pop(key) for key in ("eps", "tied") if key in how}
    torch.manual_seed(0)
    net = wrap(Net(**made))
    data = torch.arange(27).reshape(3, 9) % tokens
    return dumped(folder, lambda _: net(data).square().mean().backward(), net, **how)


def test_a_model_in_ddp_is_the_model(tmp_path):
    found = probe_analysis.diff(run(tmp_path / "a"), run(tmp_path / "b", Wrapper))
    assert found.verdict.state == "same", found.verdict.sentence
    (alignment,) = [each.alignment for each in found.runs]
    assert not alignment.only_a and not alignment.only_b
    assert [call.name for call in alignment.wrappers] == ["Module.module.Net.forward.0"]
    other = probe_analysis.diff(tmp_path / "a", run(tmp_path / "c", Wrapper, eps=1e-3)).verdict
    assert other.call.name == "Functional.layer_norm.0.forward" and "1e-05 against 0.001" in other.sentence


class Trainer(nn.Module):
    """A module of the user's own around the model."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        return self.model(*given)


def test_a_model_in_a_module_of_another_name_is_the_model(tmp_path):
    for pair in ((lambda net: net, Trainer), (Trainer, lambda net: net)):
        a, b = (
            run(tmp_path / f"{side}{pair.index(Trainer)}", wrap)
            for side, wrap in zip("ab", pair, strict=True)
        )
        found = probe_analysis.diff(a, b)
        assert found.verdict.state == "same", found.verdict.sentence
        alignment = found.runs[0].alignment
        assert not alignment.only_a and not alignment.only_b
        assert [call.name for call in alignment.wrappers] == ["Module.model.Net.forward.0"]
    other = probe_analysis.diff(tmp_path / "a1", run(tmp_path / "c", Trainer, eps=1e-3)).verdict
    assert other.call.name == "Functional.layer_norm.0.forward" and "1e-05 against 0.001" in other.sentence


def test_a_run_that_recorded_nothing_is_not_the_same(tmp_path):
    a = run(tmp_path / "a", list=["no_such_function"], level="L1")
    b = run(tmp_path / "b", level="L1")
    verdict = probe_analysis.diff(a, b).verdict
    assert verdict.state == "different" and verdict.sentence.startswith(
        "Nothing was recorded in the first run; "
    )
    assert probe_analysis.diff(b, a).verdict.sentence.startswith("Nothing was recorded in the second run; ")
    assert probe_analysis.diff(a, a).verdict.state == "same"


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"level": "L0"}, "the first is of level mix, the second of L0"),
        ({"level": "L1"}, "the first is of level mix, the second of L1"),
        ({"list": ["linear"]}, "scope or list left out"),
    ],
)
def test_what_a_run_was_not_asked_to_record_is_no_difference(how, words, tmp_path):
    found = probe_analysis.diff(run(tmp_path / "a"), run(tmp_path / "b", **how))
    assert found.verdict.state == "same", found.verdict.sentence
    assert found.runs[0].calls and words in found.runs[0].notes[0]
    assert "another implementation" not in "".join(found.runs[0].notes)


def test_runs_without_a_call_in_common_cannot_be_compared(tmp_path, capsys):
    a, b = run(tmp_path / "a", level="L0"), run(tmp_path / "b", level="L1")
    assert main([str(a), str(b)]) == 2
    assert "no call in common: level L0 (modules) against level L1 (functions)" in capsys.readouterr().err


@pytest.mark.parametrize("mode", ["statistics", "md5"])
def test_runs_without_a_number_in_common_are_not_called_the_same(mode, tmp_path, capsys):
    a, b = run(tmp_path / "a", summary_mode=mode), run(tmp_path / "b", summary_mode="xor")
    for pair in ((a, b), (b, a)):
        assert main([str(each) for each in pair]) == 2
        assert "neither numbers nor checksums of one kind" in capsys.readouterr().err
    assert main([str(b), str(run(tmp_path / "again", summary_mode="xor"))]) == 0
    # other arguments, and other shapes, are a finding all the same
    assert main([str(a), str(run(tmp_path / "c", summary_mode="xor", eps=1e-3))]) == 1


def test_other_data_is_named_where_it_comes_into_the_model(tmp_path):
    found = probe_analysis.diff(run(tmp_path / "a"), run(tmp_path / "b", tokens=5)).verdict
    assert found.call.name == "Module.token.Embedding.forward.0" and "gets another input" in found.sentence
    inside = probe_analysis.diff(run(tmp_path / "c", Wrapper), run(tmp_path / "d", Wrapper, tokens=5)).verdict
    assert inside.call.name == "Module.module.Net.forward.0"


def test_tied_weights_that_are_tied_no_more_show_in_their_gradient(tmp_path):
    found = probe_analysis.diff(run(tmp_path / "a"), run(tmp_path / "b", tied=False)).verdict
    assert found.call.name.endswith(".parameters_grad") and "tied weights" in found.sentence, found.sentence
