"""Draw pairs of runs by a seed and dump them: what is honest about the difference, which fault is in the second."""

from __future__ import annotations

import argparse
import contextlib
import json
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import torch
from attrs import asdict, frozen
from probe_torch import PrecisionDebugger
from torch.nn.attention import SDPBackend, sdpa_kernel

from .faults import FAULTS, KERNELS, Truth, plant, possible
from .kernels import Kernels
from .networks import HELD_OUT, NETWORKS, build, missing

__all__ = ["HONEST", "Pair", "Setting", "drawn", "dump", "pair_options"]


@frozen
class Setting:
    """Say how one side of a pair is computed."""

    dtype: str = "float32"
    attention: str = "sdpa"
    kernel: str | None = None
    device: str = "cpu"


_BF, _AUTO = Setting("bfloat16"), Setting("autocast")
HONEST: dict[str, tuple[Setting, Setting]] = {
    "none fp32": (Setting(), Setting()),
    "none bf16": (_BF, _BF),
    "none autocast": (_AUTO, _AUTO),
    "threads fp32": (Setting(), Setting(kernel="threads")),
    "threads bf16": (_BF, Setting("bfloat16", kernel="threads")),
    "kernels fp32": (Setting(), Setting(kernel="nomkldnn")),
    "kernels bf16": (_BF, Setting("bfloat16", kernel="nomkldnn")),
    "kernels autocast": (_AUTO, Setting("autocast", kernel="nomkldnn")),
    "split sums fp32": (Setting(), Setting(kernel="splitk")),
    "split sums bf16": (_BF, Setting("bfloat16", kernel="splitk")),
    "wide sums bf16": (_BF, Setting("bfloat16", kernel="wide")),
    "tf32 sums fp32": (Setting(), Setting(kernel="tf32")),
    "attention fp32": (Setting(attention="eager"), Setting()),
    "attention bf16": (Setting("bfloat16", "eager"), _BF),
    "fp32/bf16": (Setting(), _BF),
    "fp32/autocast": (Setting(), _AUTO),
    "fp32/bf16 attention": (Setting(attention="eager"), _BF),
    "channels_last fp32": (Setting(), Setting(kernel="channels_last")),
    "channels_last bf16": (_BF, Setting("bfloat16", kernel="channels_last")),
}
"""What is honest about the difference between two runs -> how each is computed."""
if torch.cuda.is_available():
    HONEST |= {
        "cuda fp32": (Setting(), Setting(device="cuda")),
        "cuda tf32": (Setting(), Setting(kernel="tf32", device="cuda")),
        "cuda bf16": (_BF, Setting("bfloat16", device="cuda")),
    }
_TWO_PERCENT = {"weight": ("w2",), "kernel": ("mm2",), "gradient": ("gradw2", "gradx2")}
_NO_ATTENTION = ("cnn", "resnet", "convnext")


@frozen
class Pair:
    """Describe a pair of runs: the network, what is honest about the difference, and the fault in the second run."""

    network: str
    honest: str
    seed: int
    level: str
    kind: str = ""
    fault: str | None = None
    wide: int = 1
    sketch: bool = False

    def __str__(self) -> str:
        what = f"{self.kind} ({self.fault})" if self.fault else "honest"
        return f"{what} in {self.network}, {self.honest}, {self.level}, seed {self.seed}"


@cache
def _has(network: str, fault: str, dtype: str) -> bool:
    return possible(build(network, "sdpa", 0)[0], fault, dtype)


def _settings(network: str, *, none: bool) -> list[str]:
    """Return the honest differences that a network can have. none: also none at all."""
    apart = "attention" if network in _NO_ATTENTION else "channels_last"
    return [name for name in HONEST if apart not in name and (none or not name.startswith("none"))]


def pair_options(about: str | None) -> argparse.ArgumentParser:
    """Return a parser of how many pairs are drawn, and by which seed. about: what its help begins with."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faulty", type=int, default=40)
    parser.add_argument("--honest", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    return parser


def drawn(
    faulty: int,
    honest: int,
    seed: int,
    *,
    final: bool = False,
    wide: int = 1,
    sketch: bool = False,
    bf16: bool = False,
) -> Iterator[Pair]:
    """Yield pairs, faults equally of each kind, half of them without an honest difference on top.

    final: from the networks and seeds that are held out, for the final figure, instead of from the others.
    bf16: bfloat16 on both sides, and weights, kernels and gradients that are wrong by 2 % alone.
    """
    draw = random.Random(f"pairs {seed}")
    networks = [name for name in NETWORKS if (name in HELD_OUT) == final and not missing(name)]
    faults = _TWO_PERCENT if bf16 else FAULTS
    seeds = [5 * seed + 4] if final else [5 * seed + n for n in range(4)]
    for n in range(faulty + honest):
        while True:
            network = draw.choice(networks)
            kind = list(faults)[n % len(faults)] if n < faulty else ""
            fault = draw.choice(faults[kind]) if kind else None
            on_top = n >= faulty or draw.random() < 0.5
            names = [s for s in _settings(network, none=not on_top) if on_top or s.startswith("none")]
            names = [s for s in names if not bf16 or {x.dtype for x in HONEST[s]} == {"bfloat16"}]
            setting = draw.choice(names)
            if fault is None or _has(network, fault, HONEST[setting][1].dtype):
                break
        yield Pair(
            network, setting, draw.choice(seeds), draw.choice(("mix", "L0")), kind, fault, wide, sketch
        )


def dump(pair: Pair, folder: Path) -> tuple[Path, Path, Truth | None]:
    """Dump both runs of a pair, unless they are there; return where they are, and what is wrong in the second."""
    known = folder / "truth.json"
    if known.exists():
        found = json.loads(known.read_text())
        return folder / "a", folder / "b", None if found is None else Truth(**found)
    one, two = HONEST[pair.honest]
    steps = 2 if pair.fault == "update5" else 1
    first, _ = _run(pair, one, folder / "a", steps, None)
    second, truth = _run(pair, two, folder / "b", steps, pair.fault)
    known.write_text(json.dumps(None if truth is None else asdict(truth)))
    return first, second, truth


def _run(pair: Pair, how: Setting, folder: Path, steps: int, wrong: str | None) -> tuple[Path, Truth | None]:
    torch.set_num_threads(1)
    model, batch = build(pair.network, how.attention, pair.seed, pair.wide)
    if how.dtype == "bfloat16":
        model = model.bfloat16()
        batch = {k: v.bfloat16() if v.is_floating_point() else v for k, v in batch.items()}
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = how.kernel == "tf32"
    model, batch = model.to(how.device), {k: v.to(how.device) for k, v in batch.items()}
    if how.kernel == "channels_last":
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        batch["pixel_values"] = batch["pixel_values"].to(memory_format=torch.channels_last)
    kernels = Kernels(how.kernel if how.device == "cpu" else None, wrong if wrong in KERNELS else None)
    with contextlib.ExitStack() as stack:
        truth = stack.enter_context(plant(model, batch, wrong, pair.seed, kernels))
        replaced = pair.fault in KERNELS or bool(
            {each.kernel for each in HONEST[pair.honest] if each.device == "cpu"} & {"splitk", "wide", "tf32"}
        )
        _enter(stack, how, kernels, replaced=replaced)
        debugger = PrecisionDebugger(
            dump_path=str(folder), task="statistics", level=pair.level, sketch=pair.sketch
        )
        stack.enter_context(debugger)
        torch.manual_seed(5)
        for _ in range(steps):
            debugger.start(model)
            model(**batch)["loss"].backward()
            debugger.stop()
            debugger.step()
            _update(model, truth.path if truth is not None and wrong == "update5" else "")
    if wrong in KERNELS and not kernels.hit:
        raise AssertionError(f"the kernel of {pair} was not called")
    torch.set_num_threads(1)
    return folder, truth


def _enter(stack: contextlib.ExitStack, how: Setting, kernels: Kernels, *, replaced: bool) -> None:
    if how.kernel == "threads":
        torch.set_num_threads(2)
    if how.kernel == "nomkldnn":
        stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
    if how.device == "cuda" and kernels.fault == "mask":  # what is fused takes no such mask
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
    if how.dtype == "autocast":
        stack.enter_context(torch.autocast("cpu", torch.bfloat16))
    if replaced:  # in both runs: what a mode is given is called once more
        stack.enter_context(kernels)


def _update(model: torch.nn.Module, wrong: str) -> None:
    """Take a step of gradient descent; that of one module's weight is 5 % too large."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                rate = 0.05 * (1.05 if wrong and name == f"{wrong}.weight" else 1.0)
                parameter.sub_(rate * parameter.grad)
                parameter.grad = None
