"""Distinguish calls of the model from calls that MindSpore makes for itself, which are not recorded."""

import os
import sys
import threading
from types import FrameType

import mindspore

_MINDSPORE = os.path.dirname(mindspore.__file__) + os.sep
_HERE = os.path.dirname(os.path.dirname(__file__)) + os.sep
_DATASET = os.path.join(_MINDSPORE, "dataset") + os.sep

# Python code of MindSpore whose calls are not the model's: it makes and fills parameters, reads data, compiles, and
# writes checkpoints and summaries. What its layers, losses and wrapped training steps call is the model's.
# Optimizers have a node of their own (regions.py).
_PARTS = """
    common/parameter.py common/initializer.py common/dump.py common/api.py common/seed.py common/generator.py
    common/_pijit_context.py common/jit_trace.py common/np_dtype.py common/file_system.py
    dataset/ mindrecord/ graph/ _extends/ parallel/ rewrite/ profiler/ onnx/ tools/ hal/ runtime/ utils/
    train/callback/ train/summary/ train/metrics/ train/serialization.py train/dataset_helper.py
    train/data_sink.py train/_utils.py train/mind_ir_pb2.py ops_generate/ ops/operations/_infer_ops.py
"""
_MACHINERY = tuple(os.path.join(_MINDSPORE, *part.split("/")) for part in _PARTS.split())

# Adds up the gradients of parameters, as C++ does in the real torch.
_AUTOGRAD = os.path.join("mindtorch", "autograd", "")

verdicts: tuple[dict[str, bool], dict[str, bool]] = ({}, {})
"""File name -> whether its calls are the model's; the second is for names where only the user's files count."""


def belongs_to_model(frame: FrameType, users_only: bool) -> bool:
    """Return whether a call from this frame belongs to the model. Stored in `verdicts` where the file decides."""
    name = frame.f_code.co_filename
    if name.startswith(_HERE):  # another patch of Probe's: its caller decides
        return frame.f_back is None or belongs_to_model(frame.f_back, users_only)
    seen = not name.startswith(_MINDSPORE if users_only else _MACHINERY) and _AUTOGRAD not in name
    verdicts[users_only][name] = seen
    return seen


class DatasetThread(threading.local):
    """Hold whether this thread was started by a Dataset (`active`): a transform's calls there are not the model's."""

    def __init__(self) -> None:
        main = threading.get_ident() == threading.main_thread().ident
        self.active = not main and _started_by_dataset()


def _started_by_dataset() -> bool:
    frame: FrameType | None = sys._getframe()
    outermost = ""
    while frame is not None:
        name = frame.f_code.co_filename
        if name != threading.__file__:
            outermost = name
        frame = frame.f_back
    return outermost.startswith(_DATASET)


dataset_thread = DatasetThread()
