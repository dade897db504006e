"""Give a planned step what it lacks: usual numbers, so that records are as long as in a dump, and a loss."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from attrs import evolve
from probe_format.tensors import NO_STATS, Stats, stats_json

from probe_runtime.patching.switch import muted

# As long as the numbers of the demo's tensors are on average: 19, 20, 20 and 18 characters.
_WIDE = Stats(0.07010708749294281, -0.0832291245460510, -0.00005455832043479, 12.808551213479725)
# A narrow float has few digits; its mean and norm are computed wider.
_NARROW = Stats(0.07177734375, -0.08349609375, -0.00005455832043479, 12.808551213479725)
_INTEGER = Stats(226, 10, 81.9677734375, 2864.6457023513394)
_BOOL = Stats(True, False, 0.4921875, 22.449944320643649)


def typical_numbers(
    dtype: str, count: int, *, statistics: bool = True, checksum: str | None = None, zero_count: bool = False
) -> dict[str, Any]:
    """Return the keys of a tensor object that hold numbers.

    dtype: its name, ``torch.float32`` or ``Float32``.
    count: how many elements it has.
    statistics, checksum, zero_count: as in `TensorOptions`.
    """
    found: dict[str, Any] = {}
    if statistics:
        stats = _stats(dtype.lower()) if count else NO_STATS
        found.update(stats_json(evolve(stats, zeros=count // 2 if zero_count else None)))
    if checksum is not None:
        found["md5"] = "0x" + "8" * 16 if checksum == "xor" else "8" * 8
    return found


def _stats(dtype: str) -> Stats:
    if "bool" in dtype:
        return _BOOL
    if "int" in dtype:
        return _INTEGER
    return _NARROW if "16" in dtype or "float8" in dtype else _WIDE


T = TypeVar("T")


def loss_in(out: Any, tensor: type[T], flowing: Iterable[T], total: Callable[[T], T]) -> T | None:
    """Return the loss in what a model returned: its attribute ``loss``, or the only tensor where that is one number.

    Else return the sum of all its tensors, which is not recorded; None where none of them needs a gradient.

    tensor: the class of the framework's tensors.
    flowing: the tensors in ``out`` that need a gradient.
    total: returns the sum of a tensor's elements, real and of float32.
    """
    own = getattr(out, "loss", None)
    if isinstance(own, tensor):
        return own
    found: list[Any] = list(flowing)
    if len(found) == 1 and found[0].ndim == 0:
        return found[0]  # type: ignore[no-any-return]
    with muted():
        sums: list[Any] = [total(t) for t in found]
        return sum(sums[1:], sums[0]) if sums else None
