"""Promise 2: the numbers of every tensor of a network are those of its bytes in float64, whoever computes them.

Whether the bytes are the true ones is `test_truth.py`'s. PROBE_SOAK=1 takes all networks of `bench.cause`, each in all
ways.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from documents import Json, objects
from dumping import dumped, load, number, records
from probe_format.tensors import native
from probe_torch.tensors import leaf
from torch import Tensor

from bench.cause.networks import NETWORKS, build

EVERY = bool(os.environ.get("PROBE_SOAK"))
SOME = ("llama", "mixtral", "t5", "vit", "cnn")
#: Those that the other ways of a number and of a dtype take, too.
TWO = ("llama", "cnn")
#: What sums may differ by, of the sum of the sizes.
FAR = 2e-7

Numbers = tuple[float, float, float, float]


def trained(name: str, dtype: torch.dtype | None, **settings: Any) -> dict[str, Tensor]:
    """Train a network for a step, and return its loss and what its weights are then. settings: of a dump, if any."""
    model, batch = build(name, "sdpa", 5)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with dumped(model=model, **settings) if settings else nullcontext():
        with torch.autocast("cpu", dtype or torch.bfloat16, enabled=dtype is not None):
            out = model(**batch)
        loss = out["loss"] if isinstance(out, dict) else out.loss
        loss.backward()
        optimizer.step()
    return {"loss": loss.detach(), **{key: value.detach() for key, value in model.state_dict().items()}}


unwatched = cache(trained)


def true_numbers(t: Tensor) -> tuple[Numbers, float]:
    """Return maximum, minimum, mean and norm, and the mean of the sizes."""
    wide = t.abs() if t.is_complex() else t
    wide = wide.double().flatten()
    size = float(wide.abs().max())
    norm = size * float((wide / (size or 1.0)).norm())
    return (float(wide.max()), float(wide.min()), float(wide.mean()), norm), float(wide.abs().mean())


def wrong(t: Tensor, found: Numbers) -> bool:
    truth, size = true_numbers(t)
    return (
        found[:2] != truth[:2]
        or abs(found[2] - truth[2]) > FAR * size
        or abs(found[3] - truth[3]) > FAR * truth[3]
    )


def judged(dump: Path, numbers: Callable[[Json, Tensor], Numbers]) -> int:
    """Hold all numbers of a dump against the truth, and return how many tensors there were."""
    found = records(dump)
    leaves = [(name, leaf) for name in found for leaf in objects(found[name]).values()]
    known = [(name, leaf, load(dump, leaf)) for name, leaf in leaves if leaf.get("data_name")]
    faults = [(name, leaf) for name, leaf, t in known if t.numel() and wrong(t, numbers(leaf, t))]
    assert not faults, f"{len(faults)} of {len(known)}: {faults[:5]}"
    return len(known)


def recorded(leaf: Json, t: Tensor) -> Numbers:
    high, low, mean, norm = (number(leaf[key]) for key in ("Max", "Min", "Mean", "Norm"))
    return high, low, mean, norm


def without_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "WAY", "")
    monkeypatch.setattr(leaf, "numbers_at", native.by_reference)


@pytest.mark.parametrize("way", ["library", "reference"])
@pytest.mark.parametrize("keys", [{}, {"async_dump": True}, {"sketch": True, "zero_count": True}], ids=str)
def test_denormals_have_numbers_where_the_run_flushes_them(
    keys: dict[str, bool], way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "reference":
        without_library(monkeypatch)
    codes = torch.tensor([3.0, 1.0, 7.0, 2.0] * 3).double()
    least = {"float32": 1e-42, "float64": 1e-312, "float16": 1e-7, "bfloat16": 1e-40, "float8_e4m3fn": 2e-3}
    tiny = [(codes * size).to(getattr(torch, kind)) for kind, size in least.items()]
    large, doubles = (tiny[n].repeat(20_000) for n in (0, 1))
    tiny += [
        large,
        doubles,
        tiny[1][::2],
        tiny[0][:1].expand(5),
        tiny[1][:1].expand(5),
        doubles[:6].view(3, 2).T,
    ]
    tiny += [torch.complex(t, t) for t in tiny[:2]]
    tiny.append(torch.tensor([float("nan"), float("inf"), 1e-40, 1e-41]))
    expected = [true_numbers(t)[0] for t in tiny]
    found = []
    torch.set_flush_denormal(True)
    try:
        with dumped(tmp_path, level="L1", **keys):
            for t in tiny:
                torch.clone(t)
        assert torch.tensor([1e-40]).abs().item() == 0.0, "the run does not flush them any more"
    finally:
        torch.set_flush_denormal(False)
    for name, record in records(tmp_path / "dump").items():
        if name.startswith("Torch.clone"):
            found.append(record["input_args"][0])
    assert len(found) == len(tiny)
    for told, right in zip(found, expected, strict=True):
        assert recorded(told, torch.empty(())) == pytest.approx(right, rel=1e-3, abs=0, nan_ok=True), told
    assert (found[-1]["finite_max"], found[-1]["finite_min"]) == pytest.approx(
        (1e-40, 1e-41), rel=1e-3, abs=0
    )


@pytest.mark.parametrize(
    ("name", "dtype", "way"),
    [
        (name, dtype, way)
        for name in (NETWORKS if EVERY else SOME)
        for dtype in (None, torch.bfloat16)
        for way in ("library", "reference")
        if EVERY or name in TWO or (dtype, way) == (None, "library")
    ],
)
def test_numbers_are_those_of_the_bytes(
    name: str, dtype: torch.dtype | None, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "library" and not native.WAY:
        pytest.skip("there is no compiler (cc), so probe-fast has no library here")
    if way == "reference":
        without_library(monkeypatch)
    plain = unwatched(name, dtype)
    watched = trained(name, dtype, folder=tmp_path, level="mix", task="tensor", step=[0])
    assert all(torch.equal(plain[key], watched[key]) for key in plain)
    assert judged(tmp_path / "dump", recorded) > 200


@pytest.mark.skipif(
    not (torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET")),
    reason="TRITON_INTERPRET=1 is not set",
)
@pytest.mark.parametrize("name", ["llama", "convnext"] if EVERY else ["llama"])
def test_numbers_of_the_kernel_are_those_of_the_bytes(name: str, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    from tables_here import numbers

    trained(name, torch.bfloat16, folder=tmp_path, level="L0", task="tensor", step=[0])

    def computed(leaf: Json, t: Tensor) -> Numbers:
        (found,) = numbers(t)
        high, low, mean, norm = (float(each) for each in (found.max, found.min, found.mean, found.norm))  # type: ignore[arg-type]
        return high, low, mean, norm

    assert judged(tmp_path / "dump", computed) > 100
