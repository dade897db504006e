"""Tell whether another thread may be training: then torch may write gradients and call hooks at any moment."""

from collections.abc import Iterator
from types import FrameType

from probe_runtime.collect import other_threads

# Where torch runs what trains; and where its threads are that load data, and call functions as well.
_SETTING = ("torch.autograd", "torch._tensor", "torch.optim.")
_TRAINING = (*_SETTING, "torch.nn.", "torch.functional")
_LOADING = "torch.utils.data."


def others_train() -> bool:
    """Return whether another thread has had a call collected, or is inside a module, a backward pass or an update."""
    for has_called, frame in other_threads():
        places = list(_modules(frame))
        trains = has_called or any(place.startswith(_TRAINING) for place in places)
        if trains and not any(place.startswith(_LOADING) for place in places):
            return True
    return False


def others_set_gradients() -> bool:
    """Return whether another thread is inside a backward pass or an update, so that it does not only compute."""
    every = (place for _, frame in other_threads() for place in _modules(frame))
    return any(place.startswith(_SETTING) for place in every)


def _modules(frame: FrameType | None) -> Iterator[str]:
    """Yield the names of the modules whose code a thread is in."""
    while frame is not None:
        yield str(frame.f_globals.get("__name__"))
        frame = frame.f_back
