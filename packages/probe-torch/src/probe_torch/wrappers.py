"""What stands in for a torch function while a dump runs: a plain function that hands each call to the tap."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

import attrs
import torch
from torch.overrides import (
    TorchFunctionMode,
    _get_overloaded_args,
    _pop_mode_temporarily,
    handle_torch_function,
)

__all__ = [
    "Label",
    "Tap",
    "Wrapper",
    "has_override",
    "muted",
    "original_of",
    "originals_by_id",
    "remember",
    "truly_named",
    "wrap",
]

Function = Callable[..., Any]
Wrapper = Callable[..., Any]
has_override: Callable[[tuple[Any, ...]], bool] = torch._C._has_torch_function
"""Whether __torch_function__ of an argument or a mode may want the call."""


@attrs.frozen
class Label:
    """The first two parts of a record's name: Label("Torch", "relu"); `name` is "Torch.relu", good as a
    dict key."""

    prefix: str
    api: str
    name: str = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "name", f"{self.prefix}.{self.api}")

    def __str__(self) -> str:
        return self.name


# tap(label, original, args, kwargs) -> what the call returns. The tap calls `original` itself, exactly
# once, with arguments of its choice (the given ones, normally) and decides everything else: outermost or
# not, counts, records.
Tap = Callable[[Label, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


class Switch:
    """Where the wrappers find the tap.

    They outlive Patches, because torch.compile guards on their identity; the tap does not. A wrapper that
    somebody kept after stop() finds None here and does what the original does.
    """

    tap: Tap | None = None


class _Thread(threading.local):
    muted = 0


switch = Switch()
_thread = _Thread()


class muted:
    """Within `with muted():` this thread's calls go straight to torch; other threads are not touched."""

    __slots__ = ()

    def __enter__(self) -> None:
        _thread.muted += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _thread.muted -= 1


_wrappers: dict[tuple[str, Callable[..., Any]], Wrapper] = {}
_originals: dict[Wrapper, Callable[..., Any]] = {}


def original_of(function: Any) -> Any:
    """The torch function behind a wrapper; anything else is returned as it is."""
    try:
        return _originals.get(function, function)
    except TypeError:  # not hashable, so not ours
        return function


def remember(replacement: Function, original: Function) -> None:
    """Let `original_of` know a replacement that `wrap` did not make."""
    _originals[replacement] = original


def originals_by_id() -> dict[int, Any]:
    """id(wrapper) -> its original, for all wrappers there are; a new dict."""
    return {id(wrapper): original for wrapper, original in _originals.items()}


def wrap(label: Label, original: Callable[..., Any], module: str, qualname: str) -> Wrapper:
    """The wrapper of `original`, made once per process: compiled code is guarded by its identity.

    `module` and `qualname` are where it will stand, so that pickle finds it there by name while it does.
    """
    key = (label.name, original)
    found = _wrappers.get(key)
    if found is None:
        found = _wrappers[key] = _build(label, original)
        found.__module__, found.__qualname__ = module, qualname
        _originals[found] = original
    return found


def _build(label: Label, original: Callable[..., Any]) -> Wrapper:
    # Everything that a call needs is a local of this function: it runs some 100,000 times a step.
    is_compiling = torch.compiler.is_compiling
    tracing_state = torch._C._get_tracing_state
    caller = sys._getframe

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        # First, because Dynamo knows this function: it inlines the next line and sees nothing of the rest.
        if is_compiling() or tracing_state() is not None:
            return original(*args, **kwargs)
        tap = switch.tap
        if tap is None:
            return original(*args, **kwargs)
        call = original
        if has_override(args) or (kwargs and has_override(tuple(kwargs.values()))):
            call = truly_named(original, args, kwargs)
        if _thread.muted:
            return call(*args, **kwargs)
        frame = caller(1)
        seen = _callers.get(frame.f_code.co_filename)
        if seen is None:
            seen = _is_model_code(frame)
        if not seen:
            with muted():  # what F.layer_norm calls inside a compiled graph is inside it too
                return call(*args, **kwargs)
        return tap(label, call, args, kwargs)

    return wrapper


# Calls made by the machinery of torch.compile are not the model's. Its graphs come out of `eval` under a
# numbered file name; run by the backend "eager" they call torch.relu and x.add by name, so they would meet
# our wrappers.
_TORCH = os.path.dirname(torch.__file__)
_MACHINERY = tuple(
    os.path.join(_TORCH, *part) + os.sep
    for part in (
        ("_dynamo",),
        ("_inductor",),
        ("_subclasses",),
        ("_export",),
        ("_functorch", "_aot_autograd"),
    )
) + tuple(
    # Nor are those of backward (its first gradient, ones_like), of checkpointing (detached inputs), of
    # printing.
    os.path.join(_TORCH, *part)
    for part in (("autograd", "__init__.py"), ("utils", "checkpoint.py"), ("_tensor_str.py",), ("_utils.py",))
)
_callers: dict[str, bool] = {}


def _is_model_code(frame: FrameType) -> bool:
    """Whether a call made from this frame belongs to the model; remembered by file name."""
    name = frame.f_code.co_filename
    if name.startswith("<eval_with_key>"):
        # A graph that Dynamo made says so; one that the user made with torch.fx is a model like any other.
        graph = frame.f_locals.get("self")
        meta = getattr(graph, "meta", None)
        seen = not (isinstance(meta, dict) and "dynamo_compile_id" in meta)
    else:
        seen = not name.startswith(_MACHINERY)
    _callers[name] = seen
    return seen


class _TrueNames(TorchFunctionMode):
    """Give __torch_function__ the original function.

    torch names the function it calls by looking it up (torch.Tensor.add, the global `relu` of
    torch.nn.functional), so a subclass or mode would get our wrapper, which its table of handled functions
    does not know. As the topmost mode this one is asked first; it passes the call on as torch would, and
    stays on top of what comes after.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        func = original_of(func)
        if torch._C._is_torch_function_mode_enabled():
            with _pop_mode_temporarily() as mode, _TrueNames():
                return mode.__torch_function__(func, types, args, kwargs)
        tensors = _get_overloaded_args([value for value in _tensors_in(args, kwargs) if type(value) in types])
        for tensor in tensors:
            with _TrueNames():
                result = tensor.__torch_function__(func, types, args, kwargs)
            if result is not NotImplemented:
                return result
        if tensors:  # nobody wanted it: torch words the error
            return handle_torch_function(func, tensors, *args, **kwargs)
        return func(*args, **kwargs)


def truly_named(
    original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Callable[..., Any]:
    """`original`, run under _TrueNames if a subclass or a mode of the user's can ask which function it is."""
    modes = torch.overrides._get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    # torch.set_default_device is a mode that is always on; it asks for factories only, which torch names
    # itself.
    if all(type(mode).__name__ == "DeviceContext" for mode in modes) and not any(
        _overrides(value) for value in _tensors_in(args, kwargs)
    ):
        return original

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        with _TrueNames():
            return original(*args, **kwargs)

    return call


def _tensors_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """What may carry __torch_function__: the arguments and the elements of sequences among them, in order."""
    found: list[Any] = []
    for value in (*args, *kwargs.values()):
        found.extend(value if isinstance(value, (list, tuple)) else (value,))
    return found


def _overrides(value: Any) -> bool:
    kind = type(value)
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        return False
    method = getattr(kind, "__torch_function__", torch._C._disabled_torch_function_impl)
    return method is not torch._C._disabled_torch_function_impl
