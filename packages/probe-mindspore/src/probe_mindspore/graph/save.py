"""Save tensors and gradients from code that MindSpore compiles (GRAPH_MODE, jit), and from PyNative as well.

On the CPU a host callback writes the files while the graph runs. On Ascend the device's own operator does
(`ops.TensorDump`), under the same names. These functions are compiled, so they only use what the compiler supports.
"""

import contextlib
import itertools
import os
import threading
from pathlib import Path
from typing import Any

import mindspore
from mindspore import Tensor, ops
from probe_format.errors import UsageError
from probe_format.layout import dump_path_of
from probe_format.names import safe_file_name
from probe_format.safe_files import Folder
from probe_format.tensors import npy_bytes, widen, write_parts
from probe_format.write import explain
from probe_runtime.notice import log_once

from probe_mindspore.hooks.autograd import wait
from probe_mindspore.ranks import current_rank
from probe_mindspore.tensors.tensor_view import TensorView, views_in

from .flatten import at_compile_time
from .gradient_callback import GradientCall
from .host_callback import FIRST, HostCall, Message

#: The path that makes the device's operator count a step.
_NEXT_STEP = "<tensordump-update-step>"


class _Files:
    """Write the files of this process. step: the current step."""

    def __init__(self) -> None:
        self.step = 0
        self._numbers = itertools.count()

    def write(self, save_dir: str, name: str, value: Any) -> None:
        """Write a file for each tensor in ``value``. A file that cannot be written is left out, with one warning."""
        folder = Path(save_dir) / f"step{self.step}" / f"rank{current_rank() or 0}"
        for path, tensor in views_in(value):
            at = ".".join((name, *map(str, path)))
            if tensor.data is None or not tensor.data.size:
                why = tensor.reason or "it is empty"
                log_once("probe_mindspore", f"Probe: {at} is not saved: {why}")
                continue
            try:
                self._write(folder, at, tensor)
            except OSError as error:
                log_once("probe_mindspore", f"Probe: {at} is not saved: {explain(error, folder)}")

    def _write(self, folder: Path, name: str, tensor: TensorView) -> None:
        Folder(folder, dump_path_of(folder)).make().close()
        assert tensor.data is not None
        values = tensor.data if tensor.narrow is None else widen(tensor.data, tensor.narrow)
        unfinished = folder / f".{os.getpid()}.{threading.get_ident()}.tmp"
        write_parts(unfinished, npy_bytes(values))
        try:
            while True:  # a name is used once, and for a complete file
                file = safe_file_name(f"{name}_{tensor.dtype.lower()}_{next(self._numbers)}.npy")
                with contextlib.suppress(FileExistsError):
                    os.link(unfinished, folder / file)
                    return
        finally:
            unfinished.unlink(missing_ok=True)


_files = _Files()


def _received(message: Message) -> None:
    save_dir, name, value = message.value
    _files.write(save_dir, name, value)


_places: list[tuple[str, str]] = []


def _gradient(message: Message) -> None:
    save_dir, name = _places[message.extra]
    _files.write(save_dir, f"{name}_grad", message.value)


_call = HostCall(_received)
_gradient_call = GradientCall(_gradient)


@at_compile_time
def _checked(save_dir: Any, name: Any) -> str:
    """Return the absolute folder. Raises UsageError for values of the graph, which are None while compiling."""
    for what, text in (("save_dir", save_dir), ("name", name)):
        if not isinstance(text, str) or not text:
            must = "must be a text that is known while the graph is compiled"
            raise UsageError(f"{what} {must}; got {text!r}.")
    return str(Path(save_dir).expanduser().absolute())


@at_compile_time
def _place(save_dir: Any, name: Any) -> int:
    if (save_dir, name) not in _places:
        _places.append((save_dir, name))
    return _places.index((save_dir, name))


@at_compile_time
def _on_device() -> bool:
    """Return whether the device has an operator that writes files."""
    return bool(mindspore.get_context("device_target") == "Ascend")


@at_compile_time
def _device_path(save_dir: Any, name: Any) -> str:
    """Return the path for the device's operator, which fills in the step and rank and adds the dtype and a number."""
    return str(Path(save_dir) / "{step}" / "{rank}" / safe_file_name(name))


_tensor_dump = ops.TensorDump()


def _dump_each(save_dir: Any, name: Any, value: Any) -> Any:
    done = 0
    if isinstance(value, Tensor):
        done = _tensor_dump(_device_path(save_dir, name), value)
    elif isinstance(value, dict):
        for key in value:
            done = _dump_each(save_dir, _joined(name, key), value[key])
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            done = _dump_each(save_dir, _joined(name, i), item)
    return done


@at_compile_time
def _joined(name: Any, key: Any) -> str:
    return f"{name}.{key}"


def save(save_dir: str, name: str, data: Any) -> Any:
    """Save the values of ``data`` each time this line runs, in a graph or not.

    Each tensor is written to ``{save_dir}/step{N}/rank{R}/{name}[.{key or position}...]_{dtype}_{number}.npy``, with
    increasing numbers; bfloat16 is written as float32. The result is of use to the compiler only.

    save_dir, name: constants of the graph.
    data: a tensor, or lists, tuples and dicts of tensors.
    """
    folder = _checked(save_dir, name)
    if _on_device():
        return _dump_each(folder, name, data)
    # The compiler drops the second call of a function that does not return the result of this call.
    return _call((folder, name, data))


def save_grad(save_dir: str, name: str, data: Any) -> Any:
    """Save the gradient of one tensor when it is computed, as `save` does, under ``{name}_grad``.

    Returns a tensor with the same values, to be used from then on (``x = save_grad(d, "x", x)``): the gradient is taken
    from it.
    """
    folder = _checked(save_dir, name)
    if _on_device():
        return ops.DumpGradient()(_device_path(folder, _joined(name, "grad")), data, "in")
    return _gradient_call(data, FIRST, _place(folder, name), 0)


def step() -> None:
    """End the step: what is saved from now on goes to the next ``step{N}``. To be called outside of graphs."""
    wait()  # every graph that was started has run then
    _files.step += 1
    if _on_device():
        _tensor_dump(_NEXT_STEP, Tensor(_files.step))
