"""`when` and `then`: the steps around a bad one stay, those after it are dumped in detail, and the run says why."""

from __future__ import annotations

import os
import signal
import warnings
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from contract_keep import steps_of
from documents import strict
from framework import Framework
from probe_analysis import first_non_finite
from probe_format.errors import ConfigError
from probe_format.read.verify import verify
from probe_format.watch import watch_files
from probe_runtime.watch.trigger_file import Trigger, TriggerFile

INF = float("inf")
MORE = {"level": "mix", "task": "tensor"}


def run(
    framework: Framework,
    dump: Path,
    *inputs: float,
    net: Any = None,
    between: Any = lambda step: None,
    **keys: Any,
) -> list[str]:
    """Dump a step for each input, and return what the run said.

    between: called within each step, with its number.
    """
    keys = {"level": "L0", "keep": {"last": 3}, "when": ["non_finite"], "then": MORE, **keys}
    net = framework.sequence(framework.linear(2, 2)) if net is None else net
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with framework.debugger(dump_path=dump, **keys) as debugger:
            for step, number in enumerate(inputs):
                getattr(net, "zero_grad", bool)()  # torch adds gradients up
                debugger.start(net)
                framework.train(net, framework.ones(3, 2) * number)
                between(step)
                debugger.stop()
                debugger.step()
    assert {verdict.state for verdict in verify(dump)} == {"complete"}
    return [str(each.message) for each in said if "meets" in str(each.message)]


def header(dump: Path, step: int) -> dict[str, Any]:
    return report(dump, step)["header"]


def report(dump: Path, step: int) -> dict[str, Any]:
    return strict(dump / f"step{step}" / "rank" / "report.json")


def test_the_steps_around_a_bad_one_stay_and_the_next_is_dumped_in_detail(
    framework: Framework, tmp_path: Path
) -> None:
    (said,) = run(framework, tmp_path, 1, 1, 1, 1, INF, *[1] * 5)
    assert steps_of(tmp_path) == [2, 3, 4, 5, 7, 8, 9]
    assert "Kept for good: steps 2 to 4. Dumped next, at level mix, task tensor: step 5." in said
    levels = [(h["level"], h["task"]) for h in (header(tmp_path, n) for n in steps_of(tmp_path))]
    assert levels == [("mix", "tensor") if n == 5 else ("L0", "statistics") for n in steps_of(tmp_path)]
    assert header(tmp_path, 5)["triggered"] == {"step": 4, "when": "non_finite", "rank": None}
    assert all("triggered" not in header(tmp_path, n) for n in (2, 3, 4, 7))


def test_the_reason_is_in_the_report_and_is_that_of_probe_nan(framework: Framework, tmp_path: Path) -> None:
    (said,) = run(framework, tmp_path, 1, 1, INF, 1)
    (told,) = report(tmp_path, 2)["triggers"]
    assert told == {"when": "non_finite", "why": first_non_finite(tmp_path).sentence, "rank": None}
    assert told["why"] in said and framework.kind in told["why"]
    assert all("triggers" not in report(tmp_path, n) for n in (0, 1, 3))


def test_the_detailed_step_has_functions_and_files(framework: Framework, tmp_path: Path) -> None:
    gelu = framework.functions.gelu
    run(framework, tmp_path, 1, INF, 1, between=lambda step: framework.gelu())
    records = strict(tmp_path / "step2" / "rank" / "dump.json")["data"]
    assert "Functional.gelu.0.forward" in records
    assert any(name.startswith(framework.kind) for name in records)
    assert list((tmp_path / "step2" / "rank" / "dump_tensor_data").iterdir())
    assert "Functional.gelu.0.forward" not in strict(tmp_path / "step1" / "rank" / "dump.json")["data"]
    assert framework.functions.gelu is gelu


def test_a_norm(framework: Framework, tmp_path: Path) -> None:
    (said,) = run(framework, tmp_path, 1, 1, 1000, 1, when=["norm(parameters_grad) > 100"])
    (told,) = report(tmp_path, 2)["triggers"]
    assert told["why"].startswith("the norm of 2 gradients is ")
    assert (
        told["why"] in said and "`probe nan` says of what is kept: Every value that was recorded in" in said
    )
    assert header(tmp_path, 3)["level"] == "mix"


@pytest.mark.parametrize("sign", ["<", "<="])
def test_a_norm_that_is_too_small(framework: Framework, tmp_path: Path, sign: str) -> None:
    run(framework, tmp_path, 1, 0, 1, when=[f"norm(parameters_grad) {sign} 0.1"], net=scaled(framework))
    assert header(tmp_path, 2)["triggered"]["step"] == 1


def scaled(framework: Framework) -> Any:
    """A net without a gradient where its input is 0."""
    net = framework.module_of("Scaled", lambda net, x: net.layer(x) * x)
    net.layer = framework.layer()
    return net


def test_the_norm_is_of_all_gradients_together(framework: Framework, tmp_path: Path) -> None:
    run(framework, tmp_path, 1, when=["norm(parameters_grad) > 1e9"])
    data = strict(tmp_path / "step0" / "rank" / "dump.json")["data"]
    norms = [v["Norm"] for name, r in data.items() if "parameters_grad" in name for (v,) in r.values()]
    norm = sum(n * n for n in norms) ** 0.5
    for limit, meets in ((norm * 0.999, 1), (norm * 1.001, 0)):
        dump = tmp_path / f"{meets}"
        assert len(run(framework, dump, 1, when=[f"norm(parameters_grad) > {limit}"])) == meets


def test_numbers_that_come_late_count(framework: Framework, tmp_path: Path) -> None:
    run(framework, tmp_path, 1, 1, INF, 1, async_dump=True, task="tensor")
    assert report(tmp_path, 2)["triggers"][0]["why"] == first_non_finite(tmp_path).sentence


def test_a_mask_triggers_nothing(framework: Framework, tmp_path: Path) -> None:
    causal = framework.ones(3, 3).tril() == 0

    def attend(net: Any, x: Any) -> Any:
        x = net.layer(x)
        weights = (x @ x.T).masked_fill(causal, -INF)
        return framework.functions.softmax(weights, -1) @ x

    net = framework.module_of("Attention", attend)
    net.layer = framework.layer()
    for level in ("L0", "mix"):
        dump = tmp_path / level
        assert run(framework, dump, *[1] * 5, net=net, level=level) == []
        assert steps_of(dump) == [2, 3, 4]
    assert report(tmp_path / "mix", 4)["first_non_finite"]["why"] == "3 -Inf"


def test_an_infinity_besides_the_mask_triggers(framework: Framework, tmp_path: Path) -> None:
    def compute(net: Any, x: Any) -> Any:
        weights = net.layer(x).masked_fill(framework.ones(3, 2).tril() == 0, -INF)
        return framework.functions.softmax(weights, -1) / (x - 2)

    net = framework.module_of("Net", compute)
    net.layer = framework.layer()
    run(framework, tmp_path, 1, 1, 2, 1, net=net, level="mix")
    assert report(tmp_path, 2)["triggers"][0]["why"] == first_non_finite(tmp_path).sentence


@pytest.mark.parametrize(("part", "meets"), [("forward", 1), ("backward", 0), ("gradients", 0)])
def test_a_part_of_a_step(framework: Framework, tmp_path: Path, part: str, meets: int) -> None:
    assert len(run(framework, tmp_path, 1, INF, 1, when=[f"non_finite({part})"])) == meets


def test_it_happens_so_often(framework: Framework, tmp_path: Path) -> None:
    bad = {3, 4, 5, 9, 12, 15}
    inputs = [INF if step in bad else 1 for step in range(18)]
    said = run(framework, tmp_path, *inputs, keep={"last": 2}, then={**MORE, "steps": 2, "times": 3})
    assert [text.split()[2] for text in said] == ["3", "9", "12"], "4 and 5 are dumped because of 3"
    assert steps_of(tmp_path) == [2, 3, 4, 5, 8, 9, 10, 11, 12, 13, 14, 16, 17]
    assert [n for n in steps_of(tmp_path) if header(tmp_path, n)["level"] == "mix"] == [4, 5, 10, 11, 13, 14]


def test_without_then_the_steps_stay(framework: Framework, tmp_path: Path) -> None:
    run(framework, tmp_path, 1, 1, 1, INF, *[1] * 4, then=None)
    assert steps_of(tmp_path) == [1, 2, 3, 5, 6, 7]
    assert {header(tmp_path, n)["level"] for n in steps_of(tmp_path)} == {"L0"}


def test_without_keep_every_step_stays(framework: Framework, tmp_path: Path) -> None:
    (said,) = run(framework, tmp_path, 1, INF, 1, 1, keep=None)
    assert steps_of(tmp_path) == [0, 1, 2, 3] and "Kept" not in said
    assert header(tmp_path, 2)["level"] == "mix" and report(tmp_path, 1)["triggers"]


def test_a_step_that_was_not_asked_for_is_dumped_because_of_a_trigger(
    framework: Framework, tmp_path: Path
) -> None:
    run(framework, tmp_path, 1, 1, INF, 1, 1, step=[2], keep=None)
    assert steps_of(tmp_path) == [2, 3]


def test_the_last_step_of_a_run(framework: Framework, tmp_path: Path) -> None:
    debugger = framework.debugger(dump_path=tmp_path, level="L0", when=["non_finite"])
    net = framework.sequence(framework.linear(2, 2))
    debugger.start(net)
    framework.train(net, framework.ones(3, 2) * INF)
    with pytest.warns(RuntimeWarning, match="meets 'non_finite'"):
        debugger.close()
    assert report(tmp_path, 0)["triggers"]


def test_a_registered_function_is_in_the_detailed_step(framework: Framework, tmp_path: Path) -> None:
    class Mine:
        def double(x: Any) -> Any:
            return x + x

    debugger = framework.debugger(dump_path=tmp_path, level="L1", when=["non_finite"], then={"level": "mix"})
    debugger.register_custom_api(Mine, "double", "My")
    net = framework.sequence(framework.linear(2, 2))
    with pytest.warns(RuntimeWarning, match="meets"), debugger:
        for number in (INF, 1):
            debugger.start(net)
            framework.train(net, framework.ones(3, 2) * number)
            Mine.double(framework.ones(2))
            debugger.stop()
            debugger.step()
    assert "My.double.0.forward" in strict(tmp_path / "step1" / "rank" / "dump.json")["data"]
    assert header(tmp_path, 1)["level"] == "mix"


def test_off_costs_nothing(framework: Framework, tmp_path: Path) -> None:
    with framework.debugger(dump_path=tmp_path, level="L0") as debugger:
        assert debugger.session.when is None
        debugger.observe("loss", object())
        debugger.start(framework.sequence(framework.layer()))
        assert not any(look.records for look in debugger.session.run.looks.values())
        debugger.stop()
        debugger.step()
    framework.debugger.observe("loss", object())


# ---------------- other ranks


def distributed(
    framework: Framework, dump: Path, steps: int, told: dict[int, list[Trigger]], bad: int = -1, **keys: Any
) -> list[str]:
    """Dump steps as rank 0. told: what another rank writes while a step runs."""
    keys = {"level": "L0", "keep": {"last": 3}, "when": ["non_finite"], "then": MORE, **keys}
    net = framework.sequence(framework.linear(2, 2))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with framework.debugger(dump_path=dump, **keys) as debugger:
            others = TriggerFile(dump)
            for step in range(steps):
                getattr(net, "zero_grad", bool)()
                debugger.start(net, rank_id=0)
                framework.train(net, framework.ones(3, 2) * (INF if step == bad else 1))
                debugger.stop()
                for each in told.get(step, ()):
                    others.write(each)
                debugger.step()
    assert {verdict.state for verdict in verify(dump)} == {"complete"}
    return [str(each.message) for each in said if "meets" in str(each.message)]


def detailed(dump: Path) -> list[int]:
    reports = {n: strict(dump / f"step{n}" / "rank0" / "report.json") for n in steps_of(dump)}
    return [n for n, found in reports.items() if found["header"]["level"] == "mix"]


def rank_report(dump: Path, step: int) -> dict[str, Any]:
    return strict(dump / f"step{step}" / "rank0" / "report.json")


OTHERS = Trigger(4, 6, "non_finite", "it is not finite", 1)


@pytest.mark.parametrize("late", [0, 1])
def test_a_trigger_of_another_rank(framework: Framework, tmp_path: Path, late: int) -> None:
    (said,) = distributed(framework, tmp_path, 12, {4 + late: [OTHERS]})
    assert steps_of(tmp_path) == [2, 3, 4, 6, 9, 10, 11]
    assert detailed(tmp_path) == [6]
    assert "step 4 meets 'non_finite' on rank 1: it is not finite. Kept for good: steps 2 to 4." in said
    assert rank_report(tmp_path, 4)["triggers"] == [
        {"when": "non_finite", "why": "it is not finite", "rank": 1}
    ]
    assert rank_report(tmp_path, 6)["header"]["triggered"] == {"step": 4, "when": "non_finite", "rank": 1}


def test_a_trigger_of_another_rank_while_both_watch(framework: Framework, tmp_path: Path) -> None:
    distributed(framework, tmp_path, 9, {4: [OTHERS]}, task="watch")
    assert steps_of(tmp_path) == detailed(tmp_path) == [6]
    (file,) = watch_files(tmp_path)
    assert file.triggers == [(4, "non_finite", "it is not finite")]
    assert [row.step for row in file.rows] == [*range(9)]


def test_a_trigger_in_the_first_step(framework: Framework, tmp_path: Path) -> None:
    distributed(framework, tmp_path, 6, {0: [evolve(OTHERS, step=0, at=2)]})
    assert detailed(tmp_path) == [2] and rank_report(tmp_path, 0)["triggers"]


def test_a_trigger_of_a_rank_that_is_ahead(framework: Framework, tmp_path: Path) -> None:
    distributed(framework, tmp_path, 12, {2: [OTHERS]})
    assert steps_of(tmp_path) == [0, 1, 2, 3, 4, 6, 9, 10, 11], "those up to the bad one stay, too"
    assert detailed(tmp_path) == [6]


def test_a_trigger_that_comes_too_late_for_its_step(framework: Framework, tmp_path: Path) -> None:
    distributed(framework, tmp_path, 12, {7: [OTHERS]})
    assert detailed(tmp_path) == [8]


def test_the_same_step_on_two_ranks_is_one_trigger(framework: Framework, tmp_path: Path) -> None:
    said = distributed(framework, tmp_path, 12, {5: [OTHERS]}, bad=4, then={**MORE, "times": 2})
    assert len(said) == 1
    assert [told["rank"] for told in rank_report(tmp_path, 4)["triggers"]] == [0, 1]
    assert detailed(tmp_path) == [6]


def test_what_a_rank_meets_is_told_to_the_others(framework: Framework, tmp_path: Path) -> None:
    TriggerFile(tmp_path).write(OTHERS)  # of an earlier run
    others = TriggerFile(tmp_path)
    distributed(framework, tmp_path, 8, {}, bad=3)
    assert detailed(tmp_path) == [5]
    (told,) = others.news()
    assert (told.step, told.at, told.rank, told.when) == (3, 5, 0, "non_finite")
    assert others.news() == []


def test_lines_that_are_none_are_passed_over(framework: Framework, tmp_path: Path) -> None:
    others = TriggerFile(tmp_path)
    for line in (b"{", b'{"step":"x"}', b"[1]", b"null", b'{"step":1,"at":2,"when":"a","why":"b","no":1}'):
        with (tmp_path / "triggers.jsonl").open("ab") as file:
            file.write(line.ljust(1023) + b"\n")
    others.write(evolve(OTHERS, why="\u4e0d" * 900))
    with (tmp_path / "triggers.jsonl").open("ab") as file:
        file.write(b'{"step":')
    (told,) = others.news()
    assert (told.step, told.when) == (4, "non_finite")


def test_a_file_that_cannot_be_opened_is_said_once(framework: Framework, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("")
    (tmp_path / "triggers.jsonl").symlink_to(tmp_path / "elsewhere")
    debugger = framework.debugger(dump_path=tmp_path, level="L0", when=["non_finite"])
    with (
        debugger,
        pytest.warns(RuntimeWarning, match="Conditions may be missed, here or on other ranks") as said,
    ):
        for _ in range(3):
            debugger.start(framework.sequence(framework.layer()), rank_id=0)
            debugger.stop()
            debugger.step()
    assert len(said) == 1


# ---------------- what is no number of a record


def test_a_spike(framework: Framework, tmp_path: Path) -> None:
    losses = [*[2.0, 1.9, 2.1] * 4, 9.9, 2.0, 2.0, INF, 2.0]
    net = framework.sequence(framework.linear(2, 2))
    debugger = framework.debugger(
        dump_path=tmp_path,
        level="L0",
        keep={"last": 2},
        when=["spike(loss) > 4.5"],
        then={**MORE, "times": 2},
    )
    with debugger, pytest.warns(RuntimeWarning, match="meets") as said:
        for loss in losses:
            debugger.start(net)
            framework.train(net, framework.ones(3, 2))
            tracked = net(framework.ones(3, 2)).sum() * 0.0 + loss  # float() of what has a graph warns
            debugger.observe("loss", tracked if loss == 2.1 else loss)
            debugger.observe("other", 1e9)
            debugger.stop()
            debugger.step()
    assert [each for each in said if "Probe" not in str(each.message)] == []
    assert report(tmp_path, 12)["triggers"][0]["why"] == "loss is 9.9, 4.95 times its running median 2"
    assert report(tmp_path, 15)["triggers"][0]["why"] == "loss is inf"
    assert steps_of(tmp_path) == [11, 12, 13, 14, 15, 16]


def test_what_is_observed_and_is_no_number_is_said_once(framework: Framework, tmp_path: Path) -> None:
    debugger = framework.debugger(dump_path=tmp_path, level="L0", when=["spike(loss) > 5"])
    with debugger, pytest.warns(RuntimeWarning, match="was given no number") as said:
        for _ in range(3):
            debugger.observe("loss", "much")
            debugger.step()
    assert len(said) == 1


def test_a_signal(framework: Framework, tmp_path: Path) -> None:
    came = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: came.append(number))
    own = signal.getsignal(signal.SIGUSR1)
    try:

        def send(step: int) -> None:
            if step == 2:
                os.kill(os.getpid(), signal.SIGUSR1)

        run(framework, tmp_path, *[1] * 5, when=["SIGUSR1"], between=send)
        assert came == [signal.SIGUSR1]
        assert signal.getsignal(signal.SIGUSR1) is own
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert report(tmp_path, 2)["triggers"] == [{"when": "SIGUSR1", "why": "the signal came", "rank": None}]
    assert header(tmp_path, 3)["task"] == "tensor"


def test_a_handler_that_the_run_sets_later_is_called_as_well(framework: Framework, tmp_path: Path) -> None:
    came = []
    before = signal.getsignal(signal.SIGUSR1)

    def handle(number: int, frame: Any) -> None:
        came.append(number)
        if callable(there):
            there(number, frame)  # which is Probe's

    there: Any = None

    def each(step: int) -> None:
        nonlocal there
        if step == 1:
            there = signal.signal(signal.SIGUSR1, handle)
        if step == 3:
            os.kill(os.getpid(), signal.SIGUSR1)

    run(framework, tmp_path, *[1] * 5, when=["SIGUSR1"], between=each)
    assert came == [signal.SIGUSR1]
    assert signal.getsignal(signal.SIGUSR1) is handle
    signal.signal(signal.SIGUSR1, before)
    assert report(tmp_path, 3)["triggers"]


def test_a_file_that_appears(framework: Framework, tmp_path: Path) -> None:
    there, later = tmp_path / "there", tmp_path / "later"
    there.touch()

    def appear(step: int) -> None:
        if step == 2:
            later.touch()

    dump = tmp_path / "dump"
    when = [{"file": str(there)}, f"file: {later}"]
    run(framework, dump, *[1] * 5, when=when, between=appear, then={**MORE, "times": 9})
    assert report(dump, 2)["triggers"] == [
        {"when": f"file: {later}", "why": f"{later} appeared", "rank": None}
    ]


def test_a_function(framework: Framework, tmp_path: Path) -> None:
    seen = []

    def judge(step: Any) -> Any:
        seen.append((step.number, step.rank, step.report["records"] > 0, step.values))
        return "because" if step.number == 2 else None

    run(framework, tmp_path, *[1] * 5, when=[judge])
    assert seen == [(n, None, True, {}) for n in range(3)], "then it is over"
    (told,) = report(tmp_path, 2)["triggers"]
    assert told["why"] == "because" and told["when"].endswith("judge")


def judge_by_name(step: Any) -> bool:
    return bool(step.number == 1)


def test_a_function_by_its_name(framework: Framework, tmp_path: Path) -> None:
    run(framework, tmp_path, *[1] * 4, when=["contract_when:judge_by_name"])
    assert report(tmp_path, 1)["triggers"][0]["why"] == "it returned a true value"


def test_a_function_that_fails_is_said_once(framework: Framework, tmp_path: Path) -> None:
    def fail(step: Any) -> bool:
        raise ValueError("no")

    debugger = framework.debugger(dump_path=tmp_path, level="L0", when=[fail])
    with debugger, pytest.warns(RuntimeWarning, match="fail failed, and does not count") as said:
        for _ in range(3):
            debugger.step()
    assert len(said) == 1


@pytest.mark.parametrize("name", ["contract_when:nothing", "no_such_module:f", "contract_when:INF"])
def test_a_function_that_is_not_there_is_an_error_at_once(
    framework: Framework, tmp_path: Path, name: str
) -> None:
    with pytest.raises(ConfigError, match=name.partition(":")[0]):
        framework.debugger(dump_path=tmp_path, level="L0", when=[name])
