"""Which module holds which, and in which order models are found: whatever the garbage collector's own is."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from probe_runtime.auto import Containment


class Net:
    def __init__(self, *inner: Net, parameters: tuple[object, ...] = ()) -> None:
        self.inside = {str(i): one for i, one in enumerate(inner)}
        self.own = {str(i): one for i, one in enumerate(parameters)}


class Wrapper(Net):
    pass


@pytest.fixture(autouse=True)
def still() -> Iterator[None]:
    """No collection happens by itself."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def held() -> Containment:
    return Containment(Net, "inside", "own")


@pytest.mark.parametrize("collected", [(), (0,), (1, 0), (0, 2), (2, 2)])
def test_modules_of_one_class_come_as_they_were_made(collected: tuple[int, ...]) -> None:
    there = Net()
    made = [Net(), Wrapper(), Net()]
    for generation in collected:
        gc.collect(generation)
        made.append(Net())
    found = held().of_classes(["Wrapper", "Net"], made)
    assert found == [made[1], there, made[0], *made[2:]]


@pytest.mark.parametrize("collected", [False, True])
def test_models_that_share_their_first_parameter_come_by_the_others(collected: bool) -> None:
    shared, a, b = object(), object(), object()
    tied = Net(parameters=(shared,))
    later = Wrapper(tied, Net(parameters=(b,)))
    if collected:
        gc.collect()
    sooner = Wrapper(tied, Net(parameters=(a,)))
    assert held().models_of([shared, a, b]) == [sooner, later]


def test_what_holds_a_settled_model_is_none_until_it_is_called_or_holds_more() -> None:
    a, b, more, loss = object(), object(), object(), Net()
    first, second = Net(parameters=(a,)), Net(parameters=(b,))
    assert held().models_of([a, b], [second], (), loss) == [second, first]
    around = Net(first, Net(parameters=(more,)))
    settled = [first, second]
    assert held().models_of([a, b], settled, settled, loss) == settled
    assert held().models_of([a, b], settled, settled, first) == settled
    assert held().models_of([a, b], settled, settled, around) == [around, second]
    assert held().models_of([a, b, more], settled) == [around, second]
    assert held().models_of([b], settled) == [second]


def test_models_stay_while_one_of_them_has_been_lent_other_parameters() -> None:
    a, b = object(), object()
    models = [Net(parameters=(a,)), Net(parameters=(b,))]
    holder = Net(parameters=(a,))
    models[0].own = {"0": object()}
    assert held().models_of([a, b], (), models, models[0]) == models
    assert held().models_of([a, b], (), (), models[0]) == [holder, models[1]]
