"""Make one pair of runs, compare it, and hold what came of it."""

from __future__ import annotations

import shutil
import time
import traceback
from pathlib import Path

from attrs import frozen

from ..machine import own_peak
from .grade import graded
from .pairs import Pair, dump

__all__ = ["Outcome", "outcome_of"]


@frozen
class Outcome:
    """Hold what came of a pair: its grade, what is to be said of it, and what the comparison and its process took."""

    pair: Pair
    grade: str
    said: str
    seconds: float = 0.0
    memory: int = 0


def outcome_of(pair: Pair, folder: Path, kept: bool) -> Outcome:
    """Make a pair and compare it. A pair that the packages here cannot make has failed.

    kept: whether its dumps stay.
    """
    try:
        *dumps, truth = dump(pair, folder)
        begin = time.process_time()
        grade, said = graded(*dumps, truth)
        seconds = time.process_time() - begin
    except Exception:
        return Outcome(pair, "failed", f"{folder.name} failed: {pair}\n    {traceback.format_exc(limit=-1)}")
    finally:
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)
    where = truth and f"{truth.path}{' backward' * truth.backward}"
    words = f"{folder.name} {grade}: {pair}\n    {where}\n    {said}"
    memory = own_peak() // 1024
    return Outcome(pair, grade, "" if grade in ("named", "quiet") else words, seconds, memory)
