"""Dump the kernels of one PyTorch API call on Ascend: ``with probe_kernel.torch.dump("Tensor.add.0.forward")``."""

import contextlib
import functools
import importlib
import os
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from probe_format.errors import ConfigError, Problem
from probe_format.names import ApiName
from probe_format.suggest import did_you_mean
from probe_runtime.config import choice

from probe_kernel.ascend.acl import find_npu, write_acl
from probe_kernel.ascend.api_watch import ApiWatch, parse_api
from probe_kernel.output_folder import unwritable

Patch = Callable[[ApiName, ApiWatch], AbstractContextManager[Any]]
"""Put the ``api`` of a watch in front of the named function for a block."""

# Prefix of a record's name -> the objects that may carry the function, in the order they are tried.
_OWNERS = {
    "Functional": ("torch.nn.functional",),
    "Tensor": ("torch.Tensor",),
    "Torch": ("torch", "torch.linalg", "torch.fft", "torch.special"),
    "VF": ("torch._VF",),
    "Distributed": ("torch.distributed",),
    "NPU": ("torch_npu",),
    "Aten": ("torch.ops.aten",),
}


@contextlib.contextmanager
def dump(
    api: str, *, path: str | os.PathLike[str], mode: str = "all", patch: Patch | None = None
) -> Iterator[ApiWatch]:
    """Dump the kernels of one call in the block, with Ascend's own dumper through torch_npu.

    api: the call, as level L1 names it: ``Functional.linear.0.forward`` or ``.backward``. Numbers count the calls in
    the block. For a backward pass the API runs once more on detached copies of its inputs, and that pass alone is
    dumped, when the gradient arrives.
    path: the folder to write to.
    mode: all, input or output.
    patch: how the function is replaced. By default the one function is replaced in its module, so that calls from
    inside other functions count, too.

    Raises ConfigError, before anything is changed, when an option is wrong; UsageError when torch_npu is not
    installed or too old.
    """
    name = parse_api(api, "api")
    found = [name] if isinstance(name, Problem) else []
    folder = Path(os.path.abspath(path))
    found += choice("all", "input", "output")(mode, "mode")[1]
    found += unwritable(folder)
    if isinstance(name, ApiName) and patch is None:
        found += _unfound(name)
    if isinstance(name, Problem) or found:
        raise ConfigError(found)
    npu = find_npu()  # before anything is written
    watch = ApiWatch(name, write_acl(folder, mode), npu)
    raised = True
    try:
        with (patch or replaced)(name, watch):
            yield watch
        raised = False
    finally:
        watch.close(quiet=raised)


@contextlib.contextmanager
def replaced(name: ApiName, watch: ApiWatch) -> Iterator[None]:
    """Send calls of the named function through ``watch`` in the block; restore the function at its end."""
    owner, last = _owner(name)
    original = getattr(owner, last)
    own = last in vars(owner)
    key = f"{name.prefix}.{name.api}"

    @functools.wraps(original)
    def tapped(*args: Any, **kwargs: Any) -> Any:
        return watch.api(key, original, args, kwargs)

    setattr(owner, last, tapped)
    try:
        yield
    finally:
        if own:
            setattr(owner, last, original)
        else:
            delattr(owner, last)


def _owner(name: ApiName) -> tuple[Any, str]:
    importlib.import_module("torch")
    for path in _OWNERS.get(name.prefix, ()):
        way, _, last = f"{path}.{name.api}".rpartition(".")
        with contextlib.suppress(ImportError, AttributeError, ValueError):
            if callable(getattr(owner := pkgutil.resolve_name(way), last)):
                return owner, last
    return None, ""


def _unfound(name: ApiName) -> Iterator[Problem]:
    if name.prefix not in _OWNERS:
        hint = did_you_mean(name.prefix, _OWNERS) or f"There are {', '.join(_OWNERS)}."
        yield Problem("api", f"{name.prefix!r} is not a prefix of a PyTorch API.", hint)
    elif _owner(name)[0] is None:
        names: list[str] = []
        for path in _OWNERS[name.prefix]:
            with contextlib.suppress(ImportError, AttributeError):
                names += [n for n in dir(pkgutil.resolve_name(path)) if not n.startswith("_")]
        yield Problem("api", f"{_OWNERS[name.prefix][0]} has no {name.api!r}.", did_you_mean(name.api, names))
