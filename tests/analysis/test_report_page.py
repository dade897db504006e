"""The page in a real browser: what it shows is what the files say, and it can be searched, filtered and walked."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import probe_analysis
import probe_format
import pytest
from browser import opened_browser, opened_page, settled
from report_dumps import HOSTILE, model, tensor, write
from watched import watched

CORPUS = Path(__file__).parents[1] / "format" / "corpus"
EXPECTED = json.loads((CORPUS / "expected.json").read_text())
#: One dump of each folder that holds whole records, and of those every second: each takes a second.
WHOLE = list(
    {Path(where).parts[:2]: where for where, holds in EXPECTED.items() if holds["records"]}.values()
)[::2]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with opened_browser() as found:
        yield found


def made(tmp_path: Path, *dumps: Path) -> Path:
    """The page of one dump or two."""
    page = tmp_path / "report.html"
    probe_analysis.report(*dumps).write(page)
    return page


def lines(page: Any) -> list[dict[str, Any]]:
    """What each line of the tree that is on the screen says; numbers with all their digits."""
    return page.evaluate(
        """() => [...document.querySelectorAll('#tree .line')].map(line => ({
            name: line.querySelector('.call').title,
            numbers: [...line.querySelectorAll('.number:not(.apart)')].map(cell => cell.title),
            apart: [...line.querySelectorAll('.apart')].map(cell => cell.textContent),
            type: line.querySelector('.type').textContent,
            classes: [...line.classList],
            level: Number(line.getAttribute('aria-level')),
        }))"""
    )


def names(page: Any, *, passed: bool = False) -> list[str]:
    """The names in the tree; those that only hold others that the filters take when ``passed``."""
    return [line["name"] for line in lines(page) if passed or "passed" not in line["classes"]]


def search(page: Any, words: str) -> None:
    page.fill("#search", words)
    settled(page)


def chosen(page: Any) -> str:
    return str(page.inner_text("#detail h2"))


def test_the_tree_shows_what_the_files_say(browser: Any, tmp_path: Path) -> None:
    folder = write(tmp_path / "dump", *model())
    rank = folder / "step0" / "rank"
    data = json.loads((rank / "dump.json").read_text())["data"]
    parents = json.loads((rank / "construct.json").read_text())
    with opened_page(browser, made(tmp_path, folder)) as page:
        page.click("#unfold")
        shown = {line["name"]: line for line in lines(page)}
        assert list(shown) == list(parents)  # in the order in which calls began, each below what made it
        for name, line in shown.items():
            output = data[name]["output"][0]
            truth = [output[key] for key in ("Min", "Max", "Mean", "Norm")]
            assert [float(text) for text in line["numbers"]] == truth, name
            assert line["type"] == "float32 [2x3]"
            assert line["level"] == (1 if parents[name] is None else 2)
        assert page.inner_text("#amount") == f"{len(data)} calls"
        page.select_option("#side", label="inputs")
        inputs = {line["name"]: line["numbers"] for line in lines(page)}
        assert (
            float(inputs["Functional.relu.2.forward"][1])
            == data["Functional.relu.2.forward"]["input_args"][0]["Max"]
        )
        page.select_option("#side", label="parameters")
        parameters = {line["name"]: line["numbers"] for line in lines(page)}
        assert float(parameters["Module.layers.1.Layer.forward.0"][3]) == tensor(1.9)["Norm"]
        assert parameters["Functional.relu.2.forward"] == [""] * 4


def test_searching_and_filtering(browser: Any, tmp_path: Path) -> None:
    data, parents, stack = model()
    data["Functional.relu.1.forward"]["output"] = [tensor(1.0, Max="NaN", Min="NaN", Mean="NaN", Norm="NaN")]
    folder = write(tmp_path / "dump", data, parents, stack)
    with opened_page(browser, made(tmp_path, folder)) as page:
        search(page, "LINEAR.1")
        assert names(page) == ["Functional.linear.1.forward", "Functional.linear.1.backward"]
        assert "Module.layers.1.Layer.forward.0" in names(page, passed=True)
        assert page.inner_text("#amount") == f"2 of {len(data)} calls"
        search(page, "relu.py")  # a file of the stack, so forward and backward calls
        assert names(page) == [
            f"Functional.relu.{i}.{way}"
            for way, order in (("forward", (0, 1, 2)), ("backward", (2, 1, 0)))
            for i in order
        ]
        search(page, "relu.py backward")
        assert len(names(page)) == 3
        search(page, "")
        page.click("#unfold")
        page.uncheck("#forward")
        assert set(names(page)) == {name for name in data if ".backward" in name}
        page.check("#forward")
        page.uncheck("#backward")
        assert set(names(page)) == {name for name in data if ".forward" in name}
        page.check("#backward")
        page.check("#broken")
        assert names(page) == ["Functional.relu.1.forward"]
        page.uncheck("#broken")
        search(page, "nothing has this name")
        assert names(page) == []
        assert "No call is taken" in page.inner_text("#tree")


def test_walking_the_tree_with_keys_and_clicks(browser: Any, tmp_path: Path) -> None:
    folder = write(tmp_path / "dump", *model())
    with opened_page(browser, made(tmp_path, folder)) as page:
        page.click("#fold")
        assert all(name.startswith("Module.") for name in names(page))
        page.focus("#tree")
        page.keyboard.press("Home")
        assert chosen(page) == "Module.layers.0.Layer.forward.0"
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        assert chosen(page) == "Functional.linear.0.forward"
        page.keyboard.press("ArrowDown")
        assert chosen(page) == "Functional.relu.0.forward"
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowLeft")
        assert "Functional.relu.0.forward" not in names(page)
        page.keyboard.press("End")
        assert chosen(page) == "Module.layers.0.Layer.backward.0"
        page.click(".line[data-node='0'] .twisty")
        assert "Functional.relu.0.forward" in names(page)
        page.keyboard.press("/")
        page.keyboard.type("linear.2.forward")
        settled(page)
        page.click(".line:not(.passed) .name")
        assert chosen(page) == "Functional.linear.2.forward"
        detail = page.inner_text("#detail")
        assert "input_kwargs.eps = 1e-05" in detail
        assert "u/linear.py:12" in detail
        assert "y = linear(x)" in detail
        page.click("#detail .around .link")
        assert chosen(page) == "Module.layers.2.Layer.forward.0"


def test_walking_upstream_by_who_gave_an_input(browser: Any, tmp_path: Path) -> None:
    """The latest call with these numbers before, of a module another module; never one that it is inside of."""

    def written(folder: Path, planted: int) -> Path:
        data, parents, stack = model(planted=planted)
        data["Functional.relu.1.forward"]["input_args"] = data["Functional.linear.1.forward"]["output"]
        before = data["Module.layers.1.Layer.forward.0"]
        data["Module.layers.2.Layer.forward.0"]["input_args"] = before["output"]
        return write(folder, data, parents, stack)

    a, b = written(tmp_path / "a", -1), written(tmp_path / "b", 1)
    with opened_page(browser, made(tmp_path, a, b)) as page:
        for call, giver, state in (
            ("layers.2.Layer.forward", "Module.layers.1.Layer.forward.0", "is the same in both runs"),
            ("relu.1.forward", "Functional.linear.1.forward", "makes a difference"),
        ):
            search(page, call)
            page.click(".line:not(.passed) .name")
            search(page, "")
            given = page.locator("#detail .given")
            assert [each.inner_text() for each in given.all()] == [f"given by {giver}, which {state}"]
            given.locator("button").click()
            assert chosen(page) == giver
        search(page, "linear.0.forward")
        page.click(".line:not(.passed) .name")
        assert page.locator("#detail .given").count() == 0  # the batch, which no call gave


def test_the_farther_apart_the_stronger_the_colour(browser: Any, tmp_path: Path) -> None:
    def written(folder: Path, off: float) -> Path:
        data, parents, stack = model()
        for i, far in ((0, 1e-5), (2, 1e-2)):
            record = data[f"Functional.relu.{i}.forward"]
            for side in ("input_args", "output"):
                (one,) = record[side]
                record[side] = [{**one, "Norm": one["Norm"] * (1 + off * far)}]
        return write(folder, data, parents, stack)

    a, b = written(tmp_path / "a", 0), written(tmp_path / "b", 1)
    with opened_page(browser, made(tmp_path, a, b)) as page:
        shades = page.evaluate(
            """() => Object.fromEntries([...document.querySelectorAll('#tree .line.state2')].map(line =>
                [line.querySelector('.call').title, Number(line.style.background.match(/(\\d+)%/)[1])]))"""
        )
    assert 0 < shades["Functional.relu.0.forward"] < shades["Functional.relu.2.forward"]


def test_the_users_own_line_is_marked(browser: Any, tmp_path: Path) -> None:
    folder = write(tmp_path / "dump", *model())
    with opened_page(browser, made(tmp_path, folder)) as page:
        search(page, "linear.1.forward")  # its innermost frame is the framework's
        page.click(".line:not(.passed) .name")
        assert "linear.py:11" in page.inner_text("#detail .stack .own")
        assert page.locator("#detail .stack li").count() == 2


def test_a_narrow_window_has_one_part_below_the_other(browser: Any, tmp_path: Path) -> None:
    folder = write(tmp_path / "dump", *model())
    with opened_page(browser, made(tmp_path, folder)) as page:
        page.set_viewport_size({"width": 420, "height": 900})
        findings, left, detail = (
            page.locator(each).bounding_box() for each in ("#findings", "#left", "#detail")
        )
        assert left["width"] == detail["width"] == 420
        assert findings["y"] + findings["height"] < left["y"] < left["y"] + left["height"] <= detail["y"]
        assert page.evaluate("document.documentElement.scrollWidth") == 420


def test_a_planted_difference_comes_first(browser: Any, tmp_path: Path) -> None:
    a, b = (write(tmp_path / name, *model(planted=layer)) for name, layer in (("a", -1), ("b", 1)))
    found = probe_analysis.diff(a, b)
    verdict = found.verdict
    assert verdict.call is not None
    assert verdict.call.name == "Functional.linear.1.forward"
    with opened_page(browser, made(tmp_path, a, b)) as page:
        first = page.locator("#findings .finding").first
        assert first.get_attribute("data-kind") == "verdict"
        assert first.locator("h2").inner_text().startswith("The dumps differ")
        assert first.locator(".sentence").inner_text() == verdict.sentence
        assert chosen(page) == verdict.call.name
        state = {line["name"]: line for line in lines(page)}
        assert "state3" in state["Functional.linear.1.forward"]["classes"]
        apart = state["Functional.linear.1.forward"]["apart"]
        planted = next(call for call in found.runs[0].calls if call.pair.a is verdict.call)
        assert apart == ["", f"{planted.returned:.3g}"]
        detail = page.inner_text("#detail")
        assert "makes a difference" in detail
        titles = [cell.get_attribute("title") for cell in page.locator("#detail td.number").all()]
        assert {tensor(0.32)["Norm"], tensor(0.82)["Norm"]} <= set(map(float, titles))  # here and there
        page.select_option("#difference", label="that make a difference")
        assert names(page) == [verdict.call.name]
        page.select_option("#difference", label="that differ")
        assert names(page) == [verdict.call.name]
        page.click("#tabCharts")
        assert page.locator("#charts canvas").count() == 3  # norms, ranges, differences
        page.click("#findings button:text('show this call')")
        assert chosen(page) == verdict.call.name


def test_calls_that_one_run_alone_has(browser: Any, tmp_path: Path) -> None:
    data, parents, stack = model()
    less = {name: record for name, record in data.items() if not name.startswith("Functional.relu.1.")}
    few = {name: parent for name, parent in parents.items() if not name.startswith("Functional.relu.1.")}
    a, b = write(tmp_path / "a", data, parents, stack), write(tmp_path / "b", less, few, stack)
    with opened_page(browser, made(tmp_path, a, b)) as page:
        page.click("#unfold")
        assert [x["name"] for x in lines(page) if "state4" in x["classes"]] == [
            "Functional.relu.1.forward", "Functional.relu.1.backward",
        ]  # fmt: skip
    with opened_page(browser, made(tmp_path, b, a)) as page:
        page.click("#unfold")
        shown = lines(page)
        (at,) = (i for i, x in enumerate(shown) if x["name"] == "Functional.relu.1.forward")
        assert "state5" in shown[at]["classes"]
        assert shown[at - 1]["level"] == shown[at]["level"] == 2  # inside of its module, beside the others
        assert float(shown[at]["numbers"][3]) == data["Functional.relu.1.forward"]["output"][0]["Norm"]
        page.click("text=Functional.relu.1 >> nth=0")
        assert "Only the second run has this call" in page.inner_text("#detail")


def test_the_first_value_that_is_not_finite_comes_first(browser: Any, tmp_path: Path) -> None:
    data, parents, stack = model()
    bad = tensor(1.0, Max="inf", Min=-2.5, Mean="inf", Norm="inf", nan_count=0, posinf_count=2)
    data["Functional.linear.1.forward"]["output"] = [
        bad | {"neginf_count": 0, "finite_max": 1.5, "finite_min": -2.5}
    ]
    data["Functional.linear.2.forward"]["output"] = [tensor(1.0, Max=None, Min=None, Mean=None, Norm=None)]
    folder = write(tmp_path / "dump", data, parents, stack)
    found = probe_analysis.first_non_finite(folder).first
    assert found is not None
    with opened_page(browser, made(tmp_path, folder)) as page:
        first = page.locator("#findings .finding").first
        assert first.locator(".sentence").inner_text() == found.sentence
        assert chosen(page) == "Functional.linear.1.forward"
        page.click("#unfold")
        numbers = {line["name"]: line["numbers"] for line in lines(page)}
        assert numbers["Functional.linear.1.forward"] == ["-2.5", "+Inf", "+Inf", "+Inf"]
        assert numbers["Functional.linear.2.forward"] == ["\N{EN DASH}"] * 4  # not known
        assert "2 +Inf of 6" in page.inner_text("#detail")
        first.locator("summary").first.click()
        first.locator("details li").first.wait_for()  # made when the list is opened
        before = first.locator("details").first.inner_text()
        assert "Functional.relu.0.forward" in before
        assert f"{data['Functional.relu.0.forward']['output'][0]['Max']:.6g}" in before
        page.click("#findings details button.link >> nth=0")
        assert chosen(page) == found.before[0].name


def test_infinities_that_were_asked_for_raise_no_alarm(browser: Any, tmp_path: Path) -> None:
    asked = {"type": "float", "value": " -inf"}
    masked = tensor(0.5, Min=" -inf", Mean=" -inf", Norm="inf")
    record = {
        "input_args": [tensor(0.5), tensor(0.1, dtype="torch.bool"), asked],
        "input_kwargs": {},
        "output": [masked],
    }
    folder = write(tmp_path / "dump", {"Tensor.masked_fill.0.forward": record})
    with opened_page(browser, made(tmp_path, folder)) as page:
        assert "was asked for" in page.inner_text("#findings h2")
        assert "calm" in page.get_attribute("#tree", "class")
        assert lines(page)[0]["numbers"] == ["-Inf", lines(page)[0]["numbers"][1], "-Inf", "+Inf"]
        page.keyboard.press("n")
        assert "No call in view" in page.inner_text("#amount")


@pytest.mark.slow
def test_dumps_of_many_writers_open(browser: Any, tmp_path: Path) -> None:
    """By Probe and by msprobe, of both frameworks, of runs that were killed too: as many calls as the reader counts."""
    for where in WHOLE:
        with opened_page(browser, made(tmp_path, CORPUS / where)) as page:
            page.click("#unfold")
            page.click("#tabCharts")
            page.click("#tabCoverage")
            page.click("#tabCalls")
            rank = probe_format.open(CORPUS / where).ranks[0]
            assert page.inner_text("#amount").startswith(f"{len(rank.records)} call"), where
            shown = names(page, passed=True)
            assert set(shown) <= {*rank.records.names, *rank.construct.parents}
            page.focus("#tree")
            page.keyboard.press("End")
            assert chosen(page) in shown or len(shown) < len(rank.records.names)


def test_steps_and_ranks(browser: Any, tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    for step in (0, 3, 7):
        for rank in (0, 1):
            write(folder, *model(step=step + 10 * rank), step=step, rank=rank)
    with opened_page(browser, made(tmp_path, folder)) as page:
        assert page.locator("#step option").all_inner_texts() == ["0", "3", "7"]
        assert page.locator("#rank option").all_inner_texts() == ["0", "1"]
        page.click("#unfold")
        page.click("text=Functional.linear.2 >> nth=0")
        for step, rank in ((7, 0), (7, 1), (3, 1)):
            page.select_option("#step", label=str(step))
            page.select_option("#rank", label=str(rank))
            assert chosen(page) == "Functional.linear.2.forward"  # the same call of the other run
            shown = {line["name"]: line["numbers"] for line in lines(page)}
            truth = model(step=step + 10 * rank)[0]["Functional.linear.2.forward"]["output"][0]
            assert float(shown["Functional.linear.2.forward"][3]) == truth["Norm"]
        assert page.locator("#detail .steps canvas").count() == 2
        assert "rank 1" in page.inner_text("#detail .steps")


def test_what_was_not_seen(browser: Any, tmp_path: Path) -> None:
    report = {
        "counts": {
            "seen": {"calls": 9, "modules": 3},
            "recorded": {"calls": 6, "modules": 3},
            "filtered": {"scope or list": 3},
        },
        "not_seen": [{"what": "region of torch.compile", "why": "it was compiled"}],
        "unmatched": [{"filter": "list", "value": "gemm", "nearest": ["gelu"]}],
        "missing": {"torch_npu": "not imported"},
    }
    folder = write(tmp_path / "dump", *model(), report=report)
    with opened_page(browser, made(tmp_path, folder)) as page:
        page.click("#tabCoverage")
        text = page.inner_text("#coverage")
        assert (
            "9 of 12 calls that were seen are recorded; 3 were left out by filters; 1 thing could not be seen"
            in text
        )
        for words in (
            "region of torch.compile",
            "it was compiled",
            "gemm",
            "nearest: gelu",
            "torch_npu",
            "not imported",
        ):
            assert words in text
        page.keyboard.press("ArrowLeft")  # along the tabs
        assert page.locator("#charts canvas").count() == 2


def test_texts_of_a_dump_do_nothing(browser: Any, tmp_path: Path) -> None:
    x = tensor(0.5, placements=[HOSTILE], md5=HOSTILE)
    name = f"Functional.{HOSTILE}.0.forward"
    data = {
        HOSTILE: {
            "input_args": [x],
            "input_kwargs": {HOSTILE: {"type": "str", "value": HOSTILE}},
            "output": [x],
            "raised": HOSTILE,
        },
        name: {
            "input_args": [x],
            "input_kwargs": {"--> <!--": x},
            "output": [tensor(0.5, dtype=HOSTILE, Max="NaN")],
        },
        "\ud800 &amp; \u202e\n{{x}} ${y}": {"output": [x]},
        "x" * 5000: {"output": [x]},
    }
    stack = {"0": [[HOSTILE, name], [f"File {HOSTILE}, line 1, in {HOSTILE}, \n {HOSTILE}", HOSTILE]]}
    report = {
        "not_seen": [{"what": HOSTILE, "why": HOSTILE}],
        "missing": {HOSTILE: HOSTILE},
        "counts": {HOSTILE: {HOSTILE: 1}},
    }
    folder = write(tmp_path / "dump", data, {HOSTILE: None, name: HOSTILE}, stack, report=report)
    changed = {**data, name: {**data[name], "output": [tensor(2.5, dtype=HOSTILE)]}}
    other = write(tmp_path / "other", changed, {HOSTILE: None, name: HOSTILE}, stack)
    made(tmp_path, folder, other)
    assert HOSTILE not in (tmp_path / "report.html").read_text("utf-8")
    with opened_page(browser, tmp_path / "report.html") as page:
        page.click("#unfold")
        assert names(page)[:2] == [HOSTILE, name]
        for i in range(4):
            page.click(f".line[data-node='{i}'] .name")
        page.click(".line[data-node='0'] .name")
        assert HOSTILE in page.inner_text("#detail")
        for summary in page.locator("#findings summary").all():
            summary.click()
        page.click("#tabCharts")
        page.locator("#charts .u-over").first.hover()
        page.click("#tabCoverage")
        assert HOSTILE in page.inner_text("#coverage")
        assert page.evaluate("window.hacked") is None
        assert page.locator("img").count() == 0


def test_nothing_but_the_pages_own_scripts_can_run(browser: Any, tmp_path: Path) -> None:
    """The page's policy, seen at work: a script put into it later does not run, and no address can be asked."""
    folder = write(tmp_path / "dump", *model())
    text = made(tmp_path, folder).read_text("utf-8")
    spoiled = tmp_path / "spoiled.html"
    spoiled.write_text(
        text.replace("</body>", "<script>window.hacked = 1</script><img src='http://localhost:9/x'></body>")
    )
    page = browser.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.goto(spoiled.as_uri())
    page.wait_for_selector("html[data-ready]", state="attached")
    assert page.evaluate("window.hacked") is None
    assert len([line for line in said if "Content Security Policy" in line]) == 2
    page.close()


@pytest.mark.slow
def test_many_records(browser: Any, tmp_path: Path) -> None:
    """A hundred thousand with PROBE_SOAK=1."""
    layers = 16_667 if os.environ.get("PROBE_SOAK") else 2_000  # six records each
    data, parents, stack = model(layers=layers)
    assert len(data) >= 6 * layers
    folder = write(tmp_path / "dump", data, parents, stack)
    with opened_page(browser, made(tmp_path, folder)) as page:
        page.click("#unfold")
        assert page.inner_text("#amount") == f"{len(data):,} calls"
        assert page.locator("#tree .line").count() < 100  # only what is on the screen
        page.focus("#tree")
        page.keyboard.press("End")
        assert chosen(page) == list(parents)[-1]
        assert names(page)[-1] == list(parents)[-1]
        page.evaluate("(t => { t.scrollTop = t.scrollHeight / 2 })(document.getElementById('tree'))")
        settled(page)
        middle = list(parents).index(names(page)[0])
        assert abs(middle - len(parents) / 2) < 100
        search(page, "linear.1456.")
        assert names(page) == ["Functional.linear.1456.forward", "Functional.linear.1456.backward"]
        truth = data["Functional.linear.1456.forward"]["output"][0]
        assert float(lines(page)[1]["numbers"][3]) == truth["Norm"]
        search(page, "")
        page.click("#tabCharts")
        assert page.locator("#charts canvas").count() == 2


def test_watched_steps_are_curves(browser: Any, tmp_path: Path) -> None:
    """Where there is no other dump, the page opens with them; beside one they are a view of their own."""
    alone = made(tmp_path, watched(tmp_path / "watched", 12, nan_at=7))
    with opened_page(browser, alone) as page:
        assert page.is_hidden("#tabCalls") and page.is_visible("#watched")
        assert "Step 7 on rank 1: a.weight (gradients) has 3 NaN and 0 infinite" in page.inner_text(
            "#findings"
        )
        heads = page.eval_on_selector_all("#watched h2", "heads => heads.map(head => head.textContent)")
        assert heads == ["Gradients", "Weights"]
        assert page.locator("#watched canvas").count() == 4
        labels = page.eval_on_selector_all(
            "[data-quantity=gradients] .u-label", "all => all.map(label => label.textContent)"
        )
        assert sorted(labels) == ["a.bias", "a.weight", "b.weight", "rank 0", "rank 1", "step", "step"]
        rows = page.eval_on_selector_all(
            "[data-quantity=gradients] tbody tr",
            "rows => rows.map(r => [...r.children].map(c => c.textContent))",
        )
        assert ["a.weight", "+Inf", "1", "12", "+Inf"] in rows and ["b.weight", "1", "3", "3", "3"] in rows
    dump = watched(write(tmp_path / "both", *model()), 3, ranks=1)
    with opened_page(browser, made(tmp_path, dump)) as page:
        assert page.is_visible("#tabCalls") and page.is_hidden("#watched")
        assert "All watched steps are finite" in page.inner_text("#findings")
        page.click("#tabWatched")
        assert page.is_visible("#watched") and page.is_hidden("#calls")
        assert page.locator("#watched canvas").count() == 4
