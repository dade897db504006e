"""Aliasing: whoever gets at a tensor's bytes behind its version counter is noticed first."""

from __future__ import annotations

import copy
import copyreg
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch._dynamo
from dumping import records
from probe_runtime.patching.places import originals_by_id
from probe_torch import PrecisionDebugger
from probe_torch.patching.aliasing import Aliasing
from probe_torch.patching.apis import load_apis
from probe_torch.patching.patches import Patches
from tapping import Recorder
from torch import nn


class Notes:
    def __init__(self) -> None:
        self.seen: list[tuple[int, Any]] = []

    def __call__(self, tensor: torch.Tensor) -> None:
        # What the tensor holds at this moment; tolist is no way to change it.
        self.seen.append((id(tensor), tensor.tolist()))

    def take(self) -> list[int]:
        taken, self.seen = [key for key, _ in self.seen], []
        return taken


copyreg._slotnames(torch.Tensor)  # type: ignore[attr-defined]  # a cache that pickle puts on the class


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def entered(notes: Notes) -> Iterator[Aliasing]:
    before = dict(vars(torch.Tensor))
    with Aliasing(notes) as made:
        yield made
    assert dict(vars(torch.Tensor)) == before
    assert torch.Tensor.data is vars(torch._C.TensorBase)["data"]


WAYS: dict[str, Callable[[torch.Tensor], Any]] = {
    "data": lambda x: x.data.fill_(7),
    "data =": lambda x: setattr(x, "data", torch.full((2,), 7.0)),
    "numpy": lambda x: x.numpy().fill(7),
    "__array__": lambda x: np.asarray(x).fill(7),
    "__dlpack__": lambda x: torch.from_dlpack(x).fill_(7),
    "numpy's from_dlpack": lambda x: np.from_dlpack(x),
    "untyped_storage": lambda x: x.untyped_storage().fill_(0),
    "storage": lambda x: x.storage().fill_(7),
    "data_ptr": lambda x: x.data_ptr(),
    "set_": lambda x: x.set_(torch.full((2,), 7.0)),
}


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("way", WAYS)
def test_every_way_is_noticed_before(way: str, entered: Aliasing, notes: Notes) -> None:
    x = torch.ones(2)
    notes.take()
    WAYS[way](x)
    assert notes.seen[0] == (id(x), [1.0, 1.0])


@pytest.mark.parametrize("way", ["data", "numpy", "__array__", "__dlpack__", "untyped_storage"])
def test_they_do_change_bytes_behind_the_version(way: str) -> None:
    """Why this module exists; where torch starts to count these, an entry can go."""
    x = torch.ones(2)
    version = x._version
    WAYS[way](x)
    assert x.tolist() != [1.0, 1.0]
    assert x._version == version


def test_plain_work_is_not_noticed(entered: Aliasing, notes: Notes) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.ReLU(inplace=True))
    optimizer = torch.optim.Adam(model.parameters())
    notes.take()
    model(torch.ones(3, 2)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    assert notes.take() == []


def test_setting_notes_both(entered: Aliasing, notes: Notes) -> None:
    p, value = nn.Parameter(torch.zeros(2)), torch.ones(2)
    notes.take()
    p.data = value
    assert notes.take() == [id(p), id(value)]
    assert p.tolist() == [1.0, 1.0] and p.requires_grad and isinstance(p, nn.Parameter)
    assert p.data_ptr() == value.data_ptr()


def test_errors_are_torchs(entered: Aliasing) -> None:
    with pytest.raises(TypeError, match="Variable data has to be a tensor"):
        torch.ones(1).data = 3  # type: ignore[assignment]
    with pytest.raises(RuntimeError, match="requires grad"):
        torch.ones(1, requires_grad=True).numpy()


def test_modules_move_copy_and_pickle(entered: Aliasing) -> None:
    model = nn.Linear(2, 2)
    for twin in (
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        copy.deepcopy(model).double().float(),
    ):
        assert torch.equal(twin.weight, model.weight)
        assert twin.weight.data_ptr() != model.weight.data_ptr()
    assert torch.nn.utils.parameters_to_vector(model.parameters()).shape == (6,)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled(backend: str, entered: Aliasing, notes: Notes) -> None:
    torch._dynamo.reset()

    def function(x: torch.Tensor) -> torch.Tensor:
        x.data.mul_(2)
        return x.data + x.detach()

    compiled = torch.compile(function, backend=backend, fullgraph=True)
    assert compiled(torch.ones(2)).tolist() == function(torch.ones(2)).tolist() == [4.0, 4.0]


def test_with_patches_in_place(notes: Notes) -> None:
    """Tensor.numpy is patched twice; both see the call and both go."""
    tap, before = Recorder(), dict(vars(torch.Tensor))
    patches = Patches(load_apis(), tap)
    x = torch.ones(2)
    with patches, Aliasing(notes):
        x.numpy()
        assert (notes.take(), tap.take()) == ([id(x)], ["Tensor.numpy"])
        with patches.suspended():
            x.numpy()
        assert (notes.take(), tap.take()) == ([id(x)], [])
        x.numpy()
        assert (notes.take(), tap.take()) == ([id(x)], ["Tensor.numpy"])
    assert dict(vars(torch.Tensor)) == before


def test_a_second_time(notes: Notes) -> None:
    made, x = Aliasing(notes), torch.ones(1)
    for _ in range(2):
        with made:
            x.data_ptr()
        x.data_ptr()
    assert notes.take() == [id(x)] * 2


def test_every_step_is_like_the_first(tmp_path: Path) -> None:
    """What replaces a recorded function for good neither hides it from later steps nor keeps what they made."""
    model = nn.Linear(3, 3)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="L1", task="statistics")
    kept, fused = [], []
    for step in range(4):
        debugger.start()
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        debugger.stop()
        debugger.step()
        kept.append(len(originals_by_id()))
        fused.append([name for name in records(tmp_path, step) if "fused_adam" in name])
    debugger.close()
    assert fused == [["Torch._fused_adam_.0.forward"]] * 4
    assert kept[1:] == kept[:1] * 3
