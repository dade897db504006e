"""seed_all: the same numbers again, no dropout if asked, and everything back afterwards."""

from __future__ import annotations

import copy
import os
import pickle
import random
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from probe_format.errors import UsageError
from probe_torch.dropout import no_dropout
from probe_torch.seed import seed_all
from torch import nn
from torch.nn.functional import dropout as imported_early

VARIABLES = ("PYTHONHASHSEED", "CUBLAS_WORKSPACE_CONFIG", "HCCL_DETERMINISTIC")
OWNERS = (torch, torch._VF, F)


def settings() -> dict[str, Any]:
    cudnn = torch.backends.cudnn
    return {
        **{name: os.environ.get(name) for name in VARIABLES},
        "debug mode": torch.get_deterministic_debug_mode(),
        "cudnn": (cudnn.deterministic, cudnn.benchmark, cudnn.enabled),
    }


def functions() -> dict[tuple[str, str], int]:
    """The dropout-like attributes that are there, by what they are."""
    parts = ("dropout", "lstm", "gru", "rnn", "attention")
    return {
        (o.__name__, name): id(value)
        for o in OWNERS
        for name, value in vars(o).items()
        if any(part in name for part in parts)
    }


def states() -> tuple[Any, ...]:
    numpy_state: Any = np.random.get_state()
    return random.getstate(), numpy_state[1].tolist(), torch.get_rng_state().tolist()


def draw() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), torch.rand(1).item()


@pytest.fixture(autouse=True)
def everything_comes_back() -> Iterator[None]:
    before = settings(), functions()
    yield
    assert (settings(), functions()) == before


# ---------------- seeds
def test_the_same_numbers_again() -> None:
    with seed_all():
        first = draw()
        assert os.environ["PYTHONHASHSEED"] == "1234"
    with seed_all(1234):
        assert draw() == first
    with seed_all(seed=1235):
        assert not set(draw()) & set(first)


def test_the_numbers_are_those_of_the_plain_calls() -> None:
    with seed_all(7):
        got = draw()
    random.seed(7)
    np.random.seed(7)
    torch.manual_seed(7)
    assert draw() == got


def test_everything_is_put_back() -> None:
    before = states(), settings(), functions()
    handle = seed_all(3, mode=True, rm_dropout=True)
    draw()
    assert settings() != before[1]
    assert functions() != before[2]
    handle.undo()
    assert (states(), settings(), functions()) == before
    draw()
    after = states()
    handle.undo()
    assert states() == after, "once is enough"


def test_a_variable_that_was_set_is_set_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "5")
    with seed_all(mode=True):
        assert os.environ["PYTHONHASHSEED"] == "1234"
    assert os.environ["PYTHONHASHSEED"] == "5"


def test_put_back_after_an_exception() -> None:
    before = states()
    with pytest.raises(KeyError), seed_all(3, mode=True, rm_dropout=True):
        draw()
        raise KeyError
    assert states() == before


def test_a_half_done_seeding_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = states(), settings()

    def fails(*_: Any) -> None:
        raise RuntimeError("no deterministic algorithms here")

    monkeypatch.setattr(torch, "use_deterministic_algorithms", fails)
    with pytest.raises(RuntimeError):
        seed_all(mode=True)
    assert (states(), settings()) == before


@pytest.mark.parametrize("seed", [0, 2**32 - 1, np.int64(5)])
def test_good_seeds(seed: Any) -> None:
    with seed_all(seed):
        assert os.environ["PYTHONHASHSEED"] == str(int(seed))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"seed": -1}, ["seed", "-1", "4294967295"]),
        ({"seed": 2**32}, ["seed", "4294967296"]),
        ({"seed": 1.0}, ["seed", "1.0", "float"]),
        ({"seed": True}, ["seed", "True"]),
        ({"seed": "1"}, ["seed", "'1'", "str"]),
        ({"seed": None}, ["seed", "None"]),
        ({"mode": 1}, ["mode", "True or False"]),
        ({"rm_dropout": "no"}, ["rm_dropout", "'no'"]),
        ({"seed": "x", "mode": None, "rm_dropout": 0}, ["seed", "mode", "rm_dropout"]),
    ],
    ids=str,
)
def test_wrong_arguments_change_nothing(arguments: dict[str, Any], words: list[str]) -> None:
    before = states()
    with pytest.raises(UsageError) as caught:
        seed_all(**arguments)
    assert not [w for w in words if w not in str(caught.value)]
    assert states() == before


# ---------------- accelerators, as far as a machine without them can tell
class Device:
    """The seeding side of torch.cuda or torch_npu.npu."""

    def __init__(self, awake: bool) -> None:
        self.awake = awake
        self.state: object = "before"

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return self.awake

    def manual_seed_all(self, seed: int) -> None:
        self.state = seed

    def get_rng_state_all(self) -> object:
        assert self.awake, "asking would wake it up"
        return self.state

    def set_rng_state_all(self, state: object) -> None:
        self.state = state


@pytest.mark.parametrize("awake", [True, False])
def test_npu_is_seeded_when_it_is_there(awake: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    npu = Device(awake)
    package = types.ModuleType("torch_npu")
    package.npu = npu  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch_npu", package)
    with seed_all(9):
        assert npu.state == 9
    assert npu.state == ("before" if awake else 9)


def test_a_broken_npu_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_npu", None)  # import raises ImportError
    with pytest.warns(UserWarning, match="torch_npu"), seed_all():
        pass


# ---------------- deterministic algorithms
def test_mode() -> None:
    assert not torch.are_deterministic_algorithms_enabled()
    with seed_all(mode=True):
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.is_deterministic_algorithms_warn_only_enabled()
        assert torch.backends.cudnn.deterministic
        assert not torch.backends.cudnn.benchmark
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
        assert os.environ["HCCL_DETERMINISTIC"] == "true"
    with seed_all():
        assert not torch.are_deterministic_algorithms_enabled()
        assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ


def test_a_setting_of_cublas_that_does_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    with seed_all(mode=True):
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"


def test_cublas_too_late_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Device(awake=True)
    for name in (
        "is_available",
        "is_initialized",
        "manual_seed_all",
        "get_rng_state_all",
        "set_rng_state_all",
    ):
        monkeypatch.setattr(torch.cuda, name, getattr(cuda, name))
    monkeypatch.setattr(torch, "manual_seed", lambda seed: None)
    with pytest.warns(UserWarning, match="before the first CUDA operation"), seed_all(4, mode=True):
        seeded = cuda.state
    assert (seeded, cuda.state) == (4, "before")


# ---------------- dropout
X = torch.randn(3, 4, 5, 6)
Q = torch.randn(2, 2, 3, 4)
DROPPING: dict[str, Callable[[], torch.Tensor]] = {
    "F.dropout": lambda: F.dropout(X, 0.5),
    "imported early": lambda: imported_early(X, p=0.5, training=True),
    "inplace": lambda: F.dropout(X.clone(), 0.5, inplace=True),
    "F.dropout1d": lambda: F.dropout1d(X.reshape(12, 5, 6), 0.5).reshape(X.shape),
    "F.dropout2d": lambda: F.dropout2d(X, 0.5),
    "F.dropout3d": lambda: F.dropout3d(X[None], 0.5)[0],
    "F.alpha_dropout": lambda: F.alpha_dropout(X, 0.5, True),
    "F.feature_alpha_dropout": lambda: F.feature_alpha_dropout(X, 0.5, True),
    "torch.dropout": lambda: torch.dropout(X, 0.5, True),
    "torch.dropout by name": lambda: torch.dropout(input=X, p=0.5, train=True),
    "torch.native_dropout": lambda: torch.native_dropout(X, 0.5, True)[0],
    "nn.Dropout": lambda: nn.Dropout(0.5)(X),
    "nn.Dropout2d": lambda: nn.Dropout2d(0.5)(X),
    "nn.AlphaDropout": lambda: nn.AlphaDropout(0.5)(X),
}


@pytest.mark.parametrize("name", DROPPING)
def test_dropout_passes_through(name: str) -> None:
    call = DROPPING[name]
    assert not torch.equal(call(), X), "it drops without us"
    with seed_all(rm_dropout=True):
        state = torch.get_rng_state()
        assert torch.equal(call(), X)
        assert torch.equal(torch.get_rng_state(), state), "and draws no number"
    assert not torch.equal(call(), X)


def test_dropout_of_attention() -> None:
    plain = F.scaled_dot_product_attention(Q, Q, Q)
    with seed_all(rm_dropout=True):
        state = torch.get_rng_state()
        assert torch.equal(F.scaled_dot_product_attention(Q, Q, Q, None, 0.9), plain)
        assert torch.equal(F.scaled_dot_product_attention(Q, Q, Q, dropout_p=0.9), plain)
        assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(F.scaled_dot_product_attention(Q, Q, Q, None, 0.9), plain)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("packed", [False, True])
def test_dropout_between_recurrent_layers(kind: Any, packed: bool) -> None:
    net = kind(4, 4, num_layers=2, dropout=0.9)
    x: Any = torch.randn(5, 2, 4)
    if packed:
        x = nn.utils.rnn.pack_sequence([torch.randn(3, 4), torch.randn(2, 4)])

    def run() -> Any:
        out = net(x)[0]
        return out.data if packed else out

    net.eval()
    plain = run()
    net.train()
    assert not torch.equal(run(), plain)
    with seed_all(rm_dropout=True):
        assert torch.equal(run(), plain)
    assert not torch.equal(run(), plain)


def test_a_transformer_made_before() -> None:
    layer = nn.TransformerDecoderLayer(4, 2, 8, dropout=0.5)
    x = torch.randn(3, 2, 4)
    with seed_all(rm_dropout=True):
        a, b = layer(x, x), layer(x, x)
    assert torch.equal(a, b)
    assert not torch.equal(layer(x, x), layer(x, x))


def test_gradients_pass_through() -> None:
    x = torch.randn(8, requires_grad=True)
    with seed_all(rm_dropout=True):
        torch.autograd.backward(F.dropout(x, 0.5).sum())
    assert x.grad is not None
    assert torch.equal(x.grad, torch.ones(8))


def test_wrong_probabilities_stay_wrong() -> None:
    with seed_all(rm_dropout=True), pytest.raises(ValueError, match="between 0 and 1"):
        F.dropout(X, 1.5)


def test_overlapping_removals() -> None:
    """The last undo counts, in whatever order they come."""
    a, b = no_dropout(), no_dropout()
    a.undo()
    a.undo()
    assert torch.equal(F.dropout(X, 0.5), X), "b still holds"
    b.undo()
    assert not torch.equal(F.dropout(X, 0.5), X)


def test_somebody_else_wraps_meanwhile() -> None:
    """As a dump does, started while dropout is off and stopped after it is on again."""
    owner: Any = torch
    original = owner.dropout
    handle = no_dropout()
    ours = owner.dropout

    def theirs(*args: Any) -> Any:
        return ours(*args)

    owner.dropout = theirs
    handle.undo()
    assert owner.dropout is theirs, "what is theirs is left alone"
    assert not torch.equal(owner.dropout(X, 0.5, True), X)
    owner.dropout = ours  # they put back what they found
    try:
        assert not torch.equal(owner.dropout(X, 0.5, True), X)
    finally:
        owner.dropout = original


def test_functions_and_modules_stay_what_they_are() -> None:
    before = F.dropout, nn.Dropout.forward
    net = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    with seed_all(rm_dropout=True):
        assert (F.dropout, nn.Dropout.forward) == before
        assert pickle.loads(pickle.dumps(F.dropout)) is F.dropout
        assert torch.equal(copy.deepcopy(net)[1](X), X)
        pickle.dumps(net)


def test_scripting_still_works() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with seed_all(rm_dropout=True):
            scripted = torch.jit.script(nn.Sequential(nn.Dropout(0.5), nn.LSTM(6, 6, 2, dropout=0.5)))
        x = torch.randn(4, 5, 6)
        assert scripted(x)[0].shape == x.shape


def test_compiling_still_works() -> None:
    net = nn.Dropout(0.5)
    with seed_all(rm_dropout=True):
        compiled = torch.compile(net, backend="eager", fullgraph=True)
        assert torch.equal(compiled(X), X)
    assert not torch.equal(compiled(X), X)
