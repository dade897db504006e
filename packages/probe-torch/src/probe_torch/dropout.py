"""Dropout off, for every way in which a model may reach it, until undone."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, cast

import torch
import torch.nn.functional as F

from probe_torch.patching.torch_tables import fill_caches

__all__ = ["NoDropout"]

# F.dropout and its siblings, and through them every nn.Dropout module, look these up in torch._VF at each
# call. Replaced there, dropout is off in modules made earlier too, and for `from torch.nn.functional import
# dropout`, while F.dropout stays the object that it is. The same names in torch serve direct calls.
_PROBABILITY_SECOND = (
    "dropout", "dropout_", "feature_dropout", "feature_dropout_", "alpha_dropout", "alpha_dropout_",
    "feature_alpha_dropout", "feature_alpha_dropout_", "native_dropout",
)  # fmt: skip
_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")

_lock = threading.Lock()
_holders = 0
_put: list[tuple[Any, str, Any, bool, Any]] = []


class NoDropout:
    """Dropout is off from construction until `undo`; several may overlap, and the last undo counts.

    Calls go to the original with probability 0: the input comes back as it is and no random number is drawn.
    Not reached: scripted or exported models, and fused kernels outside torch.
    """

    def __init__(self) -> None:
        self._held = True
        _hold()

    def undo(self) -> None:
        """Let dropout work again, unless another NoDropout is still held. More than once is as once."""
        held, self._held = self._held, False
        if held:
            _release()

    def __enter__(self) -> NoDropout:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()


def _hold() -> None:
    global _holders
    with _lock:
        _holders += 1
        if _holders > 1:
            return
        fill_caches()
        for owner in (torch._VF, torch):
            for name in _PROBABILITY_SECOND:
                _replace(owner, name, _second_is_zero)
            for name in _RECURRENT:
                _replace(owner, name, _recurrent_is_zero)
        _replace(F, "scaled_dot_product_attention", _attention_is_zero)


def _release() -> None:
    global _holders
    with _lock:
        _holders -= 1
        if _holders:
            return
        while _put:
            owner, name, original, inherited, ours = _put.pop()
            _script_operators().pop(id(ours), None)  # its id may be another object's later
            # Somebody (Probe itself, dumping) may have wrapped ours meanwhile and will put it back later:
            # then it stays, and passes calls through as long as nobody holds.
            if vars(owner).get(name) is ours:
                if inherited:
                    delattr(owner, name)
                else:
                    setattr(owner, name, original)


_Zero = Callable[[tuple[Any, ...], dict[str, Any]], tuple[Any, ...]]


def _replace(owner: Any, name: str, zero: _Zero) -> None:
    original = getattr(owner, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def without_dropout(*args: Any, **kwargs: Any) -> Any:
        if _holders:
            args = zero(args, kwargs)
        return original(*args, **kwargs)

    inherited = name not in vars(owner)
    setattr(owner, name, without_dropout)
    _put.append((owner, name, original, inherited, without_dropout))
    # torch.jit.script knows its operators by identity, and would try to compile ours. In what it compiles
    # dropout stays.
    operator = _script_operators().get(id(original))
    if operator is not None:
        _script_operators()[id(without_dropout)] = operator


def _script_operators() -> dict[int, str]:
    """torch's own table, id of a function -> operator; an empty one where this torch keeps it elsewhere."""
    get = getattr(getattr(torch.jit, "_builtins", None), "_get_builtin_table", dict)
    return cast(dict[int, str], get())


def _second_is_zero(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """(input, p, train); without train, as native_dropout draws random numbers even for p=0"""
    for name, value in (("p", 0.0), ("train", False)):
        if name in kwargs:
            kwargs[name] = value
    return (*args[:1], *(0.0, False)[: max(len(args) - 1, 0)], *args[3:])


def _recurrent_is_zero(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """(input, hx, params, has_biases, num_layers, dropout, ...); packed, one more before has_biases"""
    if "dropout" in kwargs:
        kwargs["dropout"] = 0.0
    at = next((i + 2 for i, a in enumerate(args) if isinstance(a, bool)), len(args))
    return (*args[:at], 0.0, *args[at + 1 :]) if at < len(args) else args


def _attention_is_zero(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """(query, key, value, attn_mask, dropout_p, ...)"""
    if "dropout_p" in kwargs:
        kwargs["dropout_p"] = 0.0
    return (*args[:4], 0.0, *args[5:]) if len(args) > 4 else args
