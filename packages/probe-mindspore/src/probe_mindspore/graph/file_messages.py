"""Send messages from a compiled graph by files, on devices that cannot call Python (Ascend), with `ops.TensorDump`.

Each tensor of a message is one file, ``{message}-{index}_{dtype}_{number}.npy``: the operator adds dtype and number,
and the numbers increase in the order of writing. A last file with the call's token ends the message. A graph gets no
answers while it runs, so a counter in the graph gives the calls their tokens. When the graph has run, `Spool.collect`
reads the files and delivers the messages as `host_callback` would have.
"""

import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from mindspore import Parameter, Tensor, nn
from mindspore.ops import functional as F
from mindspore.ops import operations as P

from . import host_callback
from .flatten import at_compile_time, flatten
from .host_callback import FIRST, Callback, deliver, register

_ONE = Tensor(np.ones(1, np.int32))
_KNOWN, _LATE = "of", "late"


class CallCounter(nn.Cell):  # type: ignore[misc]
    """Count calls inside a graph: return 1, 2, 3, ... as int32[1], one more each time."""

    def __init__(self) -> None:
        super().__init__(auto_prefix=False)
        self.count = Parameter(Tensor(np.zeros(1, np.int32)), name="probe_calls", requires_grad=False)
        self.assign = P.Assign()

    def construct(self) -> Any:
        """Return the next number, int32[1]."""
        number = self.count + _ONE
        return F.depend(number, self.assign(self.count, number))


@at_compile_time
def _path(folder: Any, site: Any, layout: Any, extra: Any, place: Any, what: Any) -> str:
    return f"{folder}/{site}-{layout}-{extra}-{place}-{what}"


class FileCall(nn.Cell):  # type: ignore[misc]
    """Send a message as `HostCall` does, by files in ``folder``. Calling it returns the token given, or a new one.

    dump: the operator that writes a tensor to a path; None for MindSpore's TensorDump.
    counter: makes the token for this call, if it is to have one of its own.
    late: whether to deliver it after all messages that are not late. So are gradients, since nothing keeps the device
        from writing them before the call that they belong to.
    """

    def __init__(
        self,
        folder: Path,
        dump: Any,
        callback: Callback,
        counter: CallCounter | None = None,
        late: bool = False,
    ) -> None:
        super().__init__(auto_prefix=False)
        self.site = register(callback)
        self.folder = str(folder)
        self.dump = P.TensorDump() if dump is None else dump
        self.counts = counter is not None
        self.end = _KNOWN if not late else _LATE
        self.counter: Any = counter

    def construct(self, value: Any, token: Any = FIRST, extra: int = 0, place: int = 0) -> Any:
        """Write ``value``, then the token. Return the token, int32[1]."""
        layout, found = flatten(value, ())
        index = 0
        for one in found:
            self.dump(_path(self.folder, self.site, layout, extra, place, index), one)
            index = index + 1
        end = self.end
        if self.counts:
            token = self.counter()
            end = "new"
        done = self.dump(_path(self.folder, self.site, layout, extra, place, end), token)
        return F.depend(token, done)


_FILE = re.compile(r"((\d+)-(\d+)-(\d+)-(\d+))-(\d+|new|of|late)_([a-z0-9_]+?)_(\d+)\.npy")


class Spool:
    """Read the message files of a folder and deliver the messages.

    patience: the longest time to wait for the device to stop writing, in seconds.
    """

    def __init__(self, folder: Path, patience: float = 10.0) -> None:
        self.folder = folder
        self.patience = patience
        self._calls: dict[int, int] = {}
        self._waiting: dict[str, list[npt.NDArray[Any]]] = {}
        self._late: list[tuple[Any, ...]] = []

    def clear(self) -> None:
        """Remove all message files."""
        self._calls.clear()
        for path, _ in self._files():
            path.unlink(missing_ok=True)

    def collect(self) -> int:
        """Deliver the messages in their order and remove the files. Return the number of messages.

        Never raises: an incomplete message is reported to `host_callback.on_fault`.
        """
        number = 0
        self._waiting, self._late = {}, []
        try:
            self._until_still()
            for path, parts in self._files():
                try:
                    number += self._take(path, parts)
                except Exception as e:
                    self._waiting.pop(parts[1], None)
                    host_callback.on_fault[-1](e)
                path.unlink(missing_ok=True)
        except OSError as e:
            host_callback.on_fault[-1](e)
        for site, layout, extra, place, token, found in self._late:
            deliver(site, layout, extra, place, self._calls.get(token, 0), found)
        for _ in range(len(self._waiting)):
            host_callback.on_fault[-1](ValueError("TensorDump left a message without its end"))
        return number

    def _take(self, path: Path, parts: re.Match[str]) -> int:
        message, what = parts[1], parts[6]
        array = np.load(path)
        if what.isdigit():
            found = self._waiting.setdefault(message, [])
            if len(found) != int(what):
                raise ValueError(f"TensorDump's files are out of order at {path.name}")
            found.append(array)
            return 0
        token = int(array.reshape(-1)[0])
        site, layout, extra, place = (int(parts[i]) for i in range(2, 6))
        found = self._waiting.pop(message, [])
        if what == _LATE:
            self._late.append((site, layout, extra, place, token, found))
        elif what == _KNOWN:
            deliver(site, layout, extra, place, self._calls.get(token, 0), found)
        elif token in self._calls:
            raise ValueError(f"the graph gave the number {token} to two calls")
        else:
            self._calls[token] = deliver(site, layout, extra, place, 0, found)
        return 1

    def _files(self) -> list[tuple[Path, re.Match[str]]]:
        """Return the message files in the order in which they were written."""
        if not self.folder.is_dir():
            return []
        found = ((path, _FILE.fullmatch(path.name)) for path in self.folder.iterdir())
        return sorted(((p, m) for p, m in found if m is not None), key=lambda item: int(item[1][8]))

    def _until_still(self) -> None:
        """Wait until no file is new or has grown: the device writes asynchronously."""
        end = time.monotonic() + self.patience
        before: Any = None
        while time.monotonic() < end:
            now = {path.name: path.stat().st_size for path, _ in self._files()}
            if now == before:
                return
            before = now
            time.sleep(0.05)
