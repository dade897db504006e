"""The largest norms, the first number that is none, and the counters of a step."""

import math

import pytest
from at_once import in_threads
from hypothesis import given
from hypothesis import strategies as st
from probe_format.jsonio import finite
from probe_format.write.coverage import LARGEST, Coverage, Summary


def tensor(norm, **kw):
    return {"Max": 1.0, "Min": 1.0, "Mean": 1.0, "Norm": norm, **kw}


NORM = st.floats(0, 100) | st.none() | st.sampled_from([math.nan, math.inf])


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), NORM), max_size=30))
def test_it_is_what_looking_at_all_of_them_gives(items):
    summary = Summary()
    best, first = {}, None  # the norms, each with the first that had it
    for i, (name, norm) in enumerate(items):
        extremes = {} if norm is None or math.isfinite(norm) else {"Max": finite(norm), "Min": finite(norm)}
        summary.add(name, "output.0", tensor(None if norm is None else finite(norm), **extremes))
        if norm is not None and math.isfinite(norm):
            best.setdefault(norm, f"{name}.output.0")
        elif norm is not None and first is None:
            first = i
    found = summary.json()
    assert [norm for _, norm in found["norms"]] == sorted(best, reverse=True)[:LARGEST]
    assert all(best[norm] == name for name, norm in found["norms"])
    assert (found["first_non_finite"] and found["first_non_finite"]["record"]) == (
        None if first is None else items[first][0]
    )


def test_the_first_that_is_not_finite_is_the_first_in_the_order_that_is_told():
    summary = Summary()
    for record, order in (("b", 4), ("c", 5), ("a", 2), ("d", 3)):
        summary.add(record, "output.0", tensor("NaN", nan_count=1), order)
    assert summary.json()["first_non_finite"]["record"] == "a"


def test_the_first_non_finite_is_told_with_its_reason():
    summary = Summary()
    summary.add("a", "output.0", tensor(1.0))
    summary.add("a", "output.1", tensor("inf"))  # the sum of the squares of finite float64 numbers
    summary.add("b", "input_args.1", tensor("NaN", nan_count=2, posinf_count=1, neginf_count=0))
    summary.add("c", "output.0", tensor("inf", nan_count=9))
    found = summary.json()["first_non_finite"]
    assert found == {"record": "b", "slot": "input_args.1", "why": "2 NaN, 1 +Inf"}


def test_the_least_norm_kept_tells_what_need_not_be_added():
    summary = Summary()
    for i in range(LARGEST):
        summary.add(str(i), "o", tensor(float(i + 1)))
    assert summary.least == 1.0
    summary.add("more", "o", tensor(10.0))
    assert summary.least == 2.0


def test_a_tensor_that_is_passed_on_counts_once_and_whole_numbers_do_not():
    summary = Summary()
    for record in ("a", "b", "c"):
        summary.add(record, "input_args.0", tensor(3.0, dtype="torch.float32"))
    for dtype in ("torch.int64", "Int32", "uint8", "torch.bool", "torch.uint16", "Bool"):
        summary.add("whole", "input_args.0", tensor(9.0, dtype=dtype))
    summary.add("d", "output.0", tensor(2.0, dtype="torch.qint8"))
    assert summary.json()["norms"] == [["a.input_args.0", 3.0], ["d.output.0", 2.0]]


def test_many_threads_may_add():
    summary = Summary()

    def run(n):
        for i in range(300):
            summary.add(f"{n}.{i}", "o", tensor(float(i)))

    in_threads(run, *range(6))
    assert [norm for _, norm in summary.json()["norms"]] == [299.0, 298.0, 297.0, 296.0, 295.0]


def test_coverage_counts_from_many_threads_and_its_json_is_a_copy():
    coverage = Coverage()

    def run(n):
        for i in range(200):
            coverage.add("seen", "calls")
            coverage.add("filtered", f"rule {i % 3}", 2)
            coverage.unseen(f"{n}.{i}", "why")
            coverage.json()

    in_threads(run, *range(4))
    found = coverage.json()
    assert found["counts"]["seen"] == {"calls": 800}
    assert sum(found["counts"]["filtered"].values()) == 1600
    assert set(found["counts"]) == {"seen", "recorded", "filtered", "unsupported", "failed", "left_out"}
    assert len(found["not_seen"]) == 800
    found["counts"]["seen"]["calls"] = 0
    assert coverage.json()["counts"]["seen"] == {"calls": 800}
    coverage.unseen("x", "first")
    coverage.unseen("x", "second")
    assert coverage.json()["not_seen"][-1] == {"what": "x", "why": "first"}
    with pytest.raises(KeyError):
        coverage.add("sene", "calls")
