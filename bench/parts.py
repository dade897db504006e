"""What a dump costs without one of its parts: an ablation, which says what a row of the page is bound by.

`without(NAME)` takes a part out of Probe in this process, for good; a dump that is made then is wrong and only good for
timing and counting. Runs by path, beside `worker.py` and `counted/`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["PARTS", "SAVE_PARTS", "TENSOR_PARTS", "without"]

_CONSTANT = (
    b'{"type":"torch.Tensor","dtype":"torch.float32","shape":[1],"Max":0.0,"Min":0.0,"Mean":0.0,"Norm":0.0}'
)


def _numbers() -> None:
    from probe_format.tensors import Stats
    from probe_torch.tensors import leaf

    leaf.numbers_at = lambda *where: (1.0, -1.0, 0.0, 1.0)
    leaf.cpu_stats = lambda *given, **more: Stats(1.0, -1.0, 0.0, 1.0)  # of those that are not plain


def _tensors() -> None:
    from probe_torch.tensors.leaf import TensorLeaf

    TensorLeaf.tensor = lambda self, placement, t, path: _CONSTANT


def _stacks() -> None:
    from probe_runtime.collect.callsite import FrameTable, _KnownStack

    stack = _KnownStack(())

    def intern(self: Any, above: int = 0, anchor: Any = None) -> Any:
        known = self._known.get(0)
        if known is not None:
            return known
        self._known[0] = 0, False, (), stack
        return 0, True, (), stack

    FrameTable.intern = intern


def _gradients() -> None:
    from probe_runtime.collect.recorder import Recorder

    begin = Recorder.__init__

    def without_gradients(self: Any, *given: Any) -> None:
        begin(self, *given)
        self._keep_backward = False

    Recorder.__init__ = without_gradients


def _events() -> None:
    from probe_format.journal.frames import JournalWriter

    append = JournalWriter.append

    def first_only(self: Any, event: Any, count: Any = None) -> None:
        if self.__dict__.setdefault("seen", 0) < 1:  # the header, without which there are no files
            self.seen += 1
            append(self, event, count)
        elif count is not None:
            count.n += 1

    JournalWriter.append = first_only


def _calls() -> None:
    from probe_runtime.collect.recorder import Recorder

    Recorder.api = lambda self, label, original, args, kwargs: original(*args, **kwargs)
    Recorder.module = lambda self, entry, module, args, kwargs, original: original(module, *args, **kwargs)


def _files() -> None:
    from probe_runtime.describe.step_files import StepFiles

    StepFiles._written = lambda self, name, parts: (
        b',"data_name":"%b","data_crc32":"00000000"' % name.encode()
    )


def _links() -> None:
    from probe_runtime.describe.equal_files import EqualFiles

    EqualFiles.write = lambda self, target, parts, folder: self._make(target, parts, folder)


def _description() -> None:
    from probe_save.described_values import DescribedValues

    DescribedValues.describe = lambda self, place, variable: (_CONSTANT, 1)


def _record() -> None:
    from probe_save.saved_step import SavedStep

    SavedStep.save = lambda self, variable, name, *, backward: None


#: What is taken out -> what takes it out.
PARTS: dict[str, Callable[[], None]] = {
    "numbers": _numbers,
    "tensors": _tensors,
    "stacks": _stacks,
    "gradients": _gradients,
    "events": _events,
    "calls": _calls,
}
#: Those of task tensor.
TENSOR_PARTS: dict[str, Callable[[], None]] = {
    "numbers": _numbers,
    "links": _links,
    "files": _files,
}
#: Those of one save().
SAVE_PARTS: dict[str, Callable[[], None]] = {
    "description": _description,
    "events": _events,
    "record": _record,
}


def without(name: str) -> None:
    """Take a part out of Probe, in this process and for good. name: a key of these tables; empty for none."""
    if name:
        (PARTS | TENSOR_PARTS | SAVE_PARTS)[name]()
