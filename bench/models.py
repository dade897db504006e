"""The models whose steps are measured, each made from its sizes with its data and its loss.

Imported by processes of any environment with torch, by path: it imports nothing else of ours.
"""

from __future__ import annotations

import importlib.util
from argparse import Namespace
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_DEMO = Path(__file__).parents[1] / "packages/probe-torch/src/probe_torch/demo_model.py"

Made = tuple[nn.Module, Iterator[Tensor], Callable[[nn.Module, Tensor], Tensor]]
"""A model, its batches without end, and what computes the loss of a batch."""


def demo_model() -> Any:
    """Return the file of the demo's model as a module of its own, so that no package need be installed."""
    spec = importlib.util.spec_from_file_location("demo_model", _DEMO)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def gpt(sizes: Namespace) -> Made:
    """Make the demo's GPT."""
    source = demo_model()
    model = source.Gpt(sizes.layers, sizes.width, length=sizes.length)
    return model, source.batches(sizes.batch, sizes.length), lambda model, window: model(window)


def llama(sizes: Namespace) -> Made:
    """Make the Llama of transformers, as it comes, with heads of 16 or 64 features."""
    from transformers import LlamaConfig, LlamaForCausalLM

    heads = sizes.width // (64 if sizes.width >= 256 else 16)
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=sizes.width,
        intermediate_size=11 * sizes.width // 4,
        num_hidden_layers=sizes.layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        use_cache=False,
    )
    model = LlamaForCausalLM(config)

    def loss(model: nn.Module, window: Tensor) -> Tensor:
        found: Tensor = model(input_ids=window[:, :-1], labels=window[:, :-1]).loss
        return found

    return model, demo_model().batches(sizes.batch, sizes.length), loss


class _Residual(nn.Module):
    """Add two 3 x 3 convolutions to what comes: (batch, channels, height, width)."""

    def __init__(self, given: int, made: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(given, made, 3, stride, 1, bias=False), nn.BatchNorm2d(made)
        self.conv2, self.bn2 = nn.Conv2d(made, made, 3, 1, 1, bias=False), nn.BatchNorm2d(made)
        self.relu = nn.ReLU(inplace=True)
        same = given == made and stride == 1
        self.short = (
            nn.Identity()
            if same
            else nn.Sequential(nn.Conv2d(given, made, 1, stride, bias=False), nn.BatchNorm2d(made))
        )

    def forward(self, x: Tensor) -> Tensor:
        grown = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        grown += self.short(x)
        made: Tensor = self.relu(grown)
        return made


def resnet(sizes: Namespace) -> Made:
    """Make a ResNet of four stages of so many blocks, the first of so many channels, on noise of ten classes."""
    stem = [
        nn.Conv2d(3, sizes.width, 3, 1, 1, bias=False),
        nn.BatchNorm2d(sizes.width),
        nn.ReLU(inplace=True),
    ]
    stages, given = [], sizes.width
    for stage in range(4):
        made = sizes.width << stage
        strides = [1 if stage == 0 else 2, *repeat(1, sizes.layers - 1)]
        blocks = []
        for stride in strides:
            blocks.append(_Residual(given, made, stride))
            given = made
        stages.append(nn.Sequential(*blocks))
    model = nn.Sequential(*stem, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(given, 10))
    chance = torch.Generator().manual_seed(0)
    shape = (sizes.batch, 3, sizes.length, sizes.length)
    labels = torch.arange(sizes.batch) % 10
    images = (torch.randn(shape, generator=chance) for _ in repeat(None))
    return model, images, lambda model, batch: F.cross_entropy(model(batch), labels.to(batch.device))


MODELS: dict[str, Callable[[Namespace], Made]] = {"gpt": gpt, "llama": llama, "resnet": resnet}
