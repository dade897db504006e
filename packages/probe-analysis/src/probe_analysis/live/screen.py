"""Show a running job on the terminal, again and again, until it has ended or the user has seen enough."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from probe_format.errors import ProbeError
from probe_format.terminal import printable

from .job import Job, State


def show(job: Job, text: Callable[[State], list[str]], every: float) -> State:
    """Show the lines of a job's state until the job ends or the user presses Ctrl-C. Return the last state.

    text: makes the lines. every: how many seconds lie between two looks.
    Raises ProbeError, which says what to install, where rich cannot be imported.
    """
    try:
        from rich.live import Live
        from rich.text import Text
    except ImportError as error:
        raise ProbeError(
            f"A running job is shown by rich, which cannot be imported here ({error}). Install it with: "
            "pip install 'probe-analysis[watch]'. --once needs nothing."
        ) from error

    def picture(state: State) -> Any:
        return Text("\n".join(map(printable, text(state))), no_wrap=True, overflow="ellipsis")

    state = job.look()
    try:
        with Live(picture(state), auto_refresh=False) as live:
            while not all(rank.state == "ended" for rank in state.ranks):
                time.sleep(every)
                state = job.look()
                live.update(picture(state), refresh=True)
    except KeyboardInterrupt:
        pass
    return state
