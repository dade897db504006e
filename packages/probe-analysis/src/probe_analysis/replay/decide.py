"""Say which of two runs is wrong at a call: whose results are farther from the exact ones, each for its own inputs."""

from collections.abc import Iterator, Sequence

from probe_format.names import with_direction

from probe_analysis.calls.run import Call, Run

from .arguments import NOT_RECORDED
from .check import replay_call
from .replayed import Replayed, percent

Pairs = Sequence[tuple[Call, Call]]


#: What was found of one pass in either run.
_Sides = tuple[Replayed, Replayed]


def decide(named: Call, a: Run, b: Run, pairs: Pairs, titles: tuple[str, str]) -> Iterator[str]:
    """Yield in lines whose result is farther from the exact one, or how to record what tells.

    named: the call that a comparison names, of either run; of a module, the functions inside are replayed.
    pairs: which call of ``a`` is which of ``b``.
    titles: what the runs are called.
    Raises FormatError when a file of a tensor would be outside the dump.
    """
    forward = with_direction(named.name, "forward")
    chosen = [
        pair
        for pair in pairs
        if pair[0].kind == "api" and not pair[0].backward and any(_is_in(call, forward) for call in pair)
    ]
    found = [each for one, two in chosen for each in _both(a, b, one, two)]
    decided = [each for each in found if all(side.error is not None for side in each)]
    if not decided:
        whys = dict.fromkeys(x.why for each in found for x in each if x.why)
        yield f"cannot be replayed: {'; '.join([*whys][:3]) or 'no function of it is in both dumps'}"
        if not whys or any(why.startswith(NOT_RECORDED) for why in whys):  # else no recording helps
            yield "record this in both runs, and compare them with --replay:"
            yield from (f"  {line}" for line in _configuration(named))
        return
    yield from _sentences(decided, titles)


def _sentences(decided: Sequence[_Sides], titles: tuple[str, str]) -> Iterator[str]:
    """Yield in lines whose result is farther from the exact one, in the pass with the largest error of all."""
    worst = max(decided, key=lambda each: max(x.units / x.limit for x in each))
    sides = sorted(zip(titles, worst, strict=True), key=lambda side: -_off(side[1]))
    (bad, far), (good, near) = sides
    yield f"{bad}'s {far.call.what} is {percent(_off(far))} from the exact result, {good}'s {percent(_off(near))}"
    if far.wrong and not near.wrong:
        yield f"  {bad} is wrong: {far.units:.3g} times what rounding explains ({far.call.name} {far.slot})"
    elif far.wrong:
        yield f"  both are wrong, by {far.units:.3g} and {near.units:.3g} times what rounding explains"
    else:
        yield "  both are right for what they were given: the difference is in their inputs and arguments"


def _configuration(named: Call) -> Iterator[str]:
    """Yield a configuration that records the tensors of a call, forward and backward, in lines of YAML."""
    what = named.name.rpartition(f".{'backward' if named.backward else 'forward'}")[0] or named.name
    yield "task: tensor"
    yield f"level: {'L1' if named.kind == 'api' else 'mix'}"
    yield f"step: [{named.rank.step or 0}]"
    if named.rank.number is not None:
        yield f"rank: [{named.rank.number}]"
    yield "dump_path: ./decide"
    yield "tensor:"
    yield f'  list: ["{what}."]'


def _both(a: Run, b: Run, one: Call, two: Call) -> Iterator[_Sides]:
    for first, second in zip(replay_call(a, one), replay_call(b, two), strict=False):
        if first.call.backward == second.call.backward:
            yield first, second


def _is_in(call: Call, name: str) -> bool:
    return call.name == name or name in call.modules


def _off(side: Replayed) -> float:
    return 0.0 if side.error is None else side.error.relative
