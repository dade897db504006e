"""Turn dropout off, by whatever route a model calls it, until undone."""

import functools
from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F
from probe_runtime.patching import Held, Place, original_of, place, replaced

from probe_torch.patching.torch_tables import fill_caches

# F.dropout and its siblings, and through them every nn.Dropout module, look these up in torch._VF at each
# call. Replaced there, dropout is off in modules made earlier too, and for `from torch.nn.functional import
# dropout`, while F.dropout stays the object that it is. The same names in torch serve direct calls.
_PROBABILITY_SECOND = (
    "dropout", "dropout_", "feature_dropout", "feature_dropout_", "alpha_dropout", "alpha_dropout_",
    "feature_alpha_dropout", "feature_alpha_dropout_", "native_dropout",
)  # fmt: skip
_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def no_dropout() -> Held:
    """Turn dropout off until ``undo`` of the returned object; several may overlap, and the last undo counts.

    Calls go to the original with probability 0: the input comes back as it is and no random number is drawn.
    Not reached: scripted or exported models, and fused kernels outside torch.
    """
    fill_caches()
    listed = [(name, _second_is_zero) for name in _PROBABILITY_SECOND]
    listed += [(name, _recurrent_is_zero) for name in _RECURRENT]
    found = [(owner, *each) for owner in (torch._VF, torch) for each in listed]
    found.append((F, "scaled_dot_product_attention", _attention_is_zero))
    places = [
        place(owner, name, _without_dropout, zero) for owner, name, zero in found if hasattr(owner, name)
    ]
    _holders.append(places)
    held = replaced(places, _let_go)
    # torch.jit.script finds its operators by identity, and would try to compile our function. What it compiles
    # keeps its dropout.
    operators = _script_operators()
    for each in places:
        operator = operators.get(id(original_of(each.now.ours)))
        if operator is not None:
            operators[id(each.now.ours)] = operator
    return held


_holders: list[list[Place]] = []
"""The places that are held, once for each holder."""
_Zero = Callable[[tuple[Any, ...], dict[str, Any]], tuple[Any, ...]]


def _without_dropout(original: Callable[..., Any], zero: _Zero) -> Callable[..., Any]:
    @functools.wraps(original)
    def without_dropout(*args: Any, **kwargs: Any) -> Any:
        if _holders:
            args = zero(args, kwargs)
        return original(*args, **kwargs)

    return without_dropout


def _let_go() -> None:
    places = _holders.pop()
    for each in places if not _holders else ():
        _script_operators().pop(id(each.now.ours), None)


def _script_operators() -> dict[int, str]:
    """Return torch's own table, id of a function -> operator; empty where this version keeps it elsewhere."""
    get = getattr(getattr(torch.jit, "_builtins", None), "_get_builtin_table", dict)
    return cast(dict[int, str], get())


def _second_is_zero(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    # (input, p, train); without train, as native_dropout draws random numbers even for p=0
    for name, value in (("p", 0.0), ("train", False)):
        if name in kwargs:
            kwargs[name] = value
    return (*args[:1], *(0.0, False)[: max(len(args) - 1, 0)], *args[3:])


def _recurrent_is_zero(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    # (input, hx, params, has_biases, num_layers, dropout, ...); packed, one more before has_biases
    if "dropout" in kwargs:
        kwargs["dropout"] = 0.0
    at = next((i + 2 for i, a in enumerate(args) if isinstance(a, bool)), len(args))
    return (*args[:at], 0.0, *args[at + 1 :]) if at < len(args) else args


def _attention_is_zero(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    # (query, key, value, attn_mask, dropout_p, ...)
    if "dropout_p" in kwargs:
        kwargs["dropout_p"] = 0.0
    return (*args[:4], 0.0, *args[5:]) if len(args) > 4 else args
