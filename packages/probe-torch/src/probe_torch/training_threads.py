"""Tell whether another thread may be training: torch then writes gradients, and calls hooks, as it likes."""

from probe_runtime.collect import other_threads

# Where torch runs what trains; not its threads that load data or compile.
_TRAINING = ("torch.nn.", "torch.autograd", "torch._tensor", "torch.optim.", "torch.functional")


def others_train() -> bool:
    """Return whether another thread has had a call collected, or is inside a module, a backward pass or an update."""
    for has_called, frame in other_threads():
        if has_called:
            return True
        while frame is not None:
            if str(frame.f_globals.get("__name__")).startswith(_TRAINING):
                return True
            frame = frame.f_back  # type: ignore[assignment]
    return False
