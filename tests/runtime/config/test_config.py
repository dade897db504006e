"""The configuration: what is taken, what is refused, and where the message points."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import yaml
from config_mapping import as_mapping
from hypothesis import given
from hypothesis import strategies as st
from probe_format.errors import ConfigError, Problem, UsageError
from probe_format.suggest import nearest, nearest_names
from probe_runtime.config.condition import conditions
from probe_runtime.config.config import Config
from probe_runtime.config.config_file import load
from probe_runtime.config.mapping_keys import Keep
from probe_runtime.config.number_ranges import Numbers, compact, parse_numbers, parse_token_range
from probe_runtime.config.resolve import resolve
from probe_runtime.session.preflight import check_rank


def problems(file: dict[str, Any] | None = None, **arguments: Any) -> dict[str, Problem]:
    with pytest.raises(ConfigError) as caught:
        resolve(file, **arguments)
    found = {p.where: p for p in caught.value.problems}
    assert len(found) == len(caught.value.problems), "every problem has its own place"
    assert all(p.what and str(p) in str(caught.value) for p in found.values())
    return found


# ---------------- ranges
@given(st.sets(st.integers(0, 500)))
def test_ranges_round_trip(numbers: set[int]) -> None:
    assert parse_numbers(compact(numbers), "step") == (numbers, ())


@given(st.integers(0, 10**6), st.integers(0, 300))
def test_a_range_includes_both_ends(first: int, more: int) -> None:
    assert parse_numbers(f"{first}-{first + more}", "step") == (set(range(first, first + more + 1)), ())


ranges_with_strides = st.tuples(st.integers(0, 60), st.integers(0, 40), st.integers(1, 12))


@given(st.lists(ranges_with_strides, max_size=6), st.integers(-2, 120))
def test_ranges_with_strides_are_the_set_of_their_numbers(
    ranges: list[tuple[int, int, int]], number: int
) -> None:
    texts = [f"{first}-{first + more}/{stride}" for first, more, stride in ranges]
    as_set = {n for first, more, stride in ranges for n in range(first, first + more + 1, stride)}
    found, wrong = parse_numbers(texts, "step")
    assert not wrong
    assert (number in found) == (number in as_set)
    assert list(found) == sorted(as_set)
    assert (len(found), bool(found), found.last) == (len(as_set), bool(as_set), max(as_set, default=None))
    again = parse_numbers(compact(as_set), "step")[0]
    assert found == as_set == again
    assert hash(found) == hash(again)


def test_a_range_is_never_written_out() -> None:
    tracemalloc.start()
    found = resolve({"step": ["0-899999", "2000000-90000000/1000", 5]}).step
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [n in found for n in (899_999, 900_000, 2_001_000, 2_001_001)] == [True, False, True, False]
    assert taken < 500_000


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=8,
)


@given(json_values)
def test_anything_is_numbers_or_problems(value: Any) -> None:
    numbers, wrong = parse_numbers(value, "rank")
    assert all(type(n) is int and n >= 0 for n in numbers)
    assert list(numbers) == sorted(set(numbers))
    assert all(p.where.startswith("rank") and p.remedy for p in wrong)
    if not isinstance(value, int | str | list):
        assert wrong


@pytest.mark.parametrize(
    ("value", "where", "word"),
    [
        ("3-1", "step", '"1-3"'),
        ([0, "3-1"], "step[1]", '"1-3"'),
        (-1, "step", "negative"),
        (["-2"], "step[0]", "negative"),
        ([True], "step[0]", "bool"),
        ([2.0], "step[0]", "Write 2."),
        ([2.5], "step[0]", "float"),
        ([float("nan")], "step[0]", "float"),
        (["x"], "step[0]", "neither a number nor a range"),
        (["4:6"], "step[0]", '"4-6"'),
        (["4..6"], "step[0]", '"4-6"'),
        (["1-2-3"], "step[0]", "neither a number nor a range"),
        ([""], "step[0]", "neither a number nor a range"),
        (["0-99999999"], "step[0]", "100000000"),
        (["9" * 5000], "step[0]", "neither a number nor a range"),
        ([None], "step[0]", "NoneType"),
        ([[1]], "step[0]", "list"),
        ({"a": 1}, "step", "dict"),
        (["0-9/0"], "step[0]", '"0-9/1"'),
        (["9-0/3"], "step[0]", '"0-9/3"'),
        (["0:100:5"], "step[0]", 'Did you mean "0-100/5"?'),
        (["0..100 step 5"], "step[0]", 'Did you mean "0-100/5"?'),
        (["0-100:5"], "step[0]", 'Did you mean "0-100/5"?'),
        (["0-100//5"], "step[0]", 'Did you mean "0-100/5"?'),
        (["/500"], "step[0]", '"0-100000/500"'),
        (["*/500"], "step[0]", '"0-100000/500"'),
        (["every 500"], "step[0]", '"0-100000/500"'),
        (["0-100/-5"], "step[0]", "neither a number nor a range"),
        (["0-99999999/2"], "step[0]", "50000000"),
        (["0-9999999999999999999999999"], "step[0]", "more than 1000000"),
        (["0-999999", "2000000-2999999"], "step", "over 1,000,000"),
    ],
)
def test_no_range(value: Any, where: str, word: str) -> None:
    found = problems(step=value)
    assert set(found) == {"argument step" + where[4:]}
    assert word in str(found["argument step" + where[4:]])


def test_where_tables_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve().tables is None
    assert resolve(dump_path="dump", export="parquet").tables == str(tmp_path / "dump/parquet")
    assert resolve(export="./tables").tables == str(tmp_path / "tables")
    assert resolve(export="s3://bucket/run").tables == "s3://bucket/run"
    watched = resolve(task="watch", export="parquet")
    assert watched.tables is None and any("export" in text for text in watched.warnings)


def test_ranges_are_sorted_sets() -> None:
    c = resolve({"rank": [1, "4-6", "5", 0, " 8 - 9 "], "step": 3})
    assert (c.rank, c.step) == ({0, 1, 4, 5, 6, 8, 9}, {3})


@pytest.mark.parametrize("good", [[1, 3], (0, 0), [2, 2]])
def test_token_range(good: Any) -> None:
    assert parse_token_range(good) == tuple(good)


@pytest.mark.parametrize("bad", [[3, 1], [1], 5, "1-3", [1, 2, 3], [True, 2], [-1, 2], [0.0, 1], {1: 2}])
def test_no_token_range(bad: Any) -> None:
    with pytest.raises(UsageError, match="token_range"):
        parse_token_range(bad)
    assert parse_token_range(None) is None


# ---------------- values
NORM = {"when": "norm(parameters_grad) > 1", "level": "mix"}


def test_nothing_given() -> None:
    c = resolve()
    assert c == Config(dump_path=Path("dump_path").absolute())
    assert c.warnings == (f"dump_path is not set; writing to {Path('dump_path').absolute()}.",)


@pytest.mark.parametrize(
    ("keys", "where", "words"),
    [
        ({"level": "L3"}, "level", ["'L3'", '"L0"', '"mix"']),
        ({"level": "l1"}, "level", ["Did you mean 'L1'?"]),
        ({"level": 1}, "level", ["1 is an int"]),
        ({"task": "tensors"}, "task", ["Did you mean 'tensor'?"]),
        ({"task": ["tensor"]}, "task", ["is a list"]),
        ({"task": "overflow_check"}, "task", ["not done by Probe", '"statistics"']),
        ({"task": "run_ut"}, "task", ["not done by Probe"]),
        ({"dump_path": ""}, "dump_path", ["empty"]),
        ({"dump_path": "  "}, "dump_path", ["empty"]),
        ({"dump_path": 7}, "dump_path", ["not a path"]),
        ({"dump_path": b"d"}, "dump_path", ["not a path"]),
        ({"dump_path": "a\0b"}, "dump_path", ["NUL"]),
        ({"dump_path": __file__}, "dump_path", ["a file, not a directory"]),
        ({"rank": ["one"]}, "rank[0]", ["'one'"]),
        ({"step": [-1]}, "step[0]", ["-1 is negative"]),
        ({"precision": "medium"}, "precision", ['"low" or "high"']),
        ({"extra_info": "yes"}, "extra_info", ["not a bool", "true or false"]),
        ({"async_dump": 1}, "async_dump", ["not a bool"]),
        ({"risk_level": "all"}, "risk_level", ["Did you mean 'ALL'?"]),
        ({"max_faults": True}, "max_faults", ["a bool"]),
        ({"step_ends": "updates"}, "step_ends", ["Did you mean 'update'?"]),
        ({"step_ends": "last"}, "step_ends", ["an optimizer's class or number"]),
        ({"step_ends": "all:"}, "step_ends", ["takes nothing after it"]),
        ({"step_ends": "calls:train"}, "step_ends", ["names no function"]),
        ({"step_ends": 3}, "step_ends", ["3 is no text"]),
        ({"first_step": -1}, "first_step", ["-1", "auto"]),
        ({"first_step": True}, "first_step", ["no number"]),
        ({"async_bytes": 0}, "async_bytes", ["not above 0"]),
        ({"async_bytes": "1GiB"}, "async_bytes", ["not a whole number"]),
        ({"apis": "/no/such/apis.yaml"}, "apis", ["/no/such/apis.yaml"]),
        ({"lst": []}, "lst", ["Did you mean 'list'?"]),
        ({"dump_pth": "x"}, "dump_pth", ["Did you mean 'dump_path'?"]),
        ({"zzzzz": 1}, "zzzzz", ["not a key", "dump_path", "tensor_list"]),
        ({5: 1}, "5", ["not a key"]),
        ({"dump_enable": "no"}, "dump_enable", ["not a bool"]),
        ({"dump_enable": False, "level": "debug"}, "dump_enable", ["start()"]),
        ({"statistics": 3}, "statistics", ["keys and values"]),
        (
            {"statistics": {"summary_mode": "md4"}},
            "statistics.summary_mode",
            ["Did you mean 'md5'?", '"xor"'],
        ),
        ({"statistics": {"summary_mode": ["max"]}}, "statistics.summary_mode", ["is a list"]),
        ({"statistics": {"data_mode": ["inputs"]}}, "statistics.data_mode[0]", ["Did you mean 'input'?"]),
        ({"statistics": {"data_mode": ["all", "input"]}}, "statistics.data_mode", ['["input"]']),
        ({"statistics": {"list": [1]}}, "statistics.list[0]", ["not a string"]),
        ({"statistics": {"list": 1}}, "statistics.list", ["not a list"]),
        ({"statistics": {"list": ["relu", " "]}}, "statistics.list[1]", ["match every name"]),
        ({"statistics": {"step": [1]}}, "statistics.step", ["Move it to the top level"]),
        ({"statistics": {"lists": []}}, "statistics.lists", ["Did you mean 'list'?"]),
        ({"list": ["a"], "statistics": {"list": ["b"]}}, "statistics.list", ["at the top"]),
        ({"keep": 3}, "keep", ["{last: 5}"]),
        ({"keep": {}}, "keep", ["last is missing"]),
        ({"keep": {"last": 0}}, "keep.last", ["above 0"]),
        ({"keep": {"last": True}}, "keep.last", ["bool"]),
        ({"keep": {"last": 2, "first": 1}}, "keep", ["'first' is not known"]),
        ({"export": True}, "export", ["a bool, not a path"]),
        ({"export": {"parquet": "s3://bucket/run"}}, "export", ["not a path"]),
        ({"export": "tensorboard"}, "export", ["Write parquet, ./tables or e.g. s3://bucket/run"]),
        ({"export": " "}, "export", ["is empty"]),
        ({"export": "s3://a\0b"}, "export", ["NUL"]),
        ({"export": __file__}, "export", ["is a file"]),
        ({"when": "non_finite", "then": "mix"}, "then", ["does not say what happens"]),
        ({"when": "non_finite", "then": {"levl": "mix"}}, "then", ["'level'"]),
        ({"when": "non_finite", "then": {"level": "L2"}}, "then.level", []),
        ({"when": "non_finite", "then": {"task": "structure"}}, "then.task", []),
        ({"when": "non_finite", "then": {"steps": 0}}, "then.steps", []),
        ({"when": "non_finite", "then": {"times": True}}, "then.times", []),
        # values that contradict each other
        ({"then": {"level": "mix"}}, "then", ["Write when as well"]),
        ({**NORM, "task": "structure"}, "when[0]", ["task 'structure' records none"]),
        ({**NORM, "summary_mode": "xor"}, "when[0]", ["summary_mode 'xor' records none"]),
        ({**NORM, "level": "L1"}, "when[0]", ["level 'L1' records no gradients"]),
        ({**NORM, "data_mode": ["forward"]}, "when[0]", ["leaves gradients of parameters out"]),
        ({**NORM, "when": "norm(optimizer_grad) > 1"}, "when[0]", ["Set optimizer_grad"]),
        ({"task": "tensor", "tensor": {"tensor_list": ["relu"]}}, "tensor.tensor_list", ["choose with list"]),
        ({"task": "structure", "tensor_list": ["relu"]}, "tensor_list", ["Remove it"]),
        ({"task": "structure", "level": "debug"}, "level", ["records none"]),
        ({"scope": ["Torch.relu.0.forward"]}, "scope", ["has 1 name;"]),
        ({"scope": ["Torch.relu.0.forward"] * 3}, "scope", ["has 3 names;"]),
        ({"scope": ["Module.a.B.forward.0", "Torch.relu.0.forward"]}, "scope[0]", ["functions only"]),
        (
            {"level": "L0", "scope": ["Module.a.B.forward.0", "Torch.relu.0.forward"]},
            "scope[1]",
            ["modules only"],
        ),
        ({"scope": ["Torch.relu.0.backward", "Torch.relu.1.forward"]}, "scope", ["comes first"]),
    ],
    ids=str,
)
def test_what_is_refused(keys: dict[str, Any], where: str, words: list[str]) -> None:
    found = problems(keys)
    assert list(found) == [where]
    assert not [w for w in words if w not in str(found[where])], str(found[where])


def test_a_misspelt_part_of_a_key() -> None:
    with pytest.raises(ConfigError, match="'last'") as caught:
        resolve(keep={"lst": 3})
    assert {p.where for p in caught.value.problems} == {"argument keep"}


def test_every_problem_at_once() -> None:
    found = problems(
        {
            "task": "statistic",
            "level": "L9",
            "rank": [0, "b", -1],
            "colour": "red",
            "statistics": {"summary_mode": "sha", "scope": 5},
            "tensor": {"data_mode": ["up"]},
        },
        step="3-1",
        levle="L1",
    )
    assert set(found) == {
        "task", "level", "rank[1]", "rank[2]", "colour", "statistics.summary_mode", "statistics.scope",
        "tensor.data_mode[0]", "argument step", "argument levle",
    }  # fmt: skip


@pytest.mark.parametrize("mode", ["md5", "xor"])
def test_checksums_with_async_dump_say_what_is_done(mode: str) -> None:
    c = resolve({"dump_path": "d", "async_dump": True, "statistics": {"summary_mode": mode}})
    assert (c.async_dump, c.summary_mode) == (True, mode)
    assert [w for w in c.warnings if "computed there" in w and mode in w]
    assert resolve({"dump_path": "d", "async_dump": True}).warnings == ()


def test_structure_is_mix() -> None:
    assert resolve({"task": "structure", "dump_path": "d"}).level == "mix"
    assert resolve({"task": "structure", "dump_path": "d"}).warnings == ()
    told = resolve({"task": "structure", "level": "L1", "dump_path": "d"})
    assert told.level == "mix"
    assert "L1 is taken as mix" in told.warnings[0]
    assert resolve({"task": "structure", "level": "L0"}).level == "L0"


@pytest.mark.parametrize("key", ["acc_check", "load", "slice", "enable_dataloader", "run_ut", "white_list"])
def test_keys_without_effect_are_told(key: str) -> None:
    c = resolve({"dump_path": "d", key: {"white_list": []}})
    assert c == resolve({"dump_path": "d"})
    (said,) = c.warnings
    assert said.startswith(key)
    assert "no effect in Probe" in said
    # Also inside a section, except for the names of sections.
    if key not in ("acc_check", "run_ut"):
        inside = resolve({"dump_path": "d", "statistics": {key: 1}})
        assert inside.warnings[0].startswith(f"statistics.{key}: has no effect")


@pytest.mark.parametrize("level", ["debug", "L2"])
@pytest.mark.parametrize(
    ("key", "value"), [("export", "parquet"), ("keep", {"last": 2}), ("when", "non_finite")]
)
def test_a_level_that_has_nothing_for_a_key_says_so(key: str, value: Any, level: str) -> None:
    said = resolve({key: value}, level=level).warnings
    assert any(f"{key} has no effect" in text for text in said)


def test_the_section_of_another_task_is_only_told() -> None:
    c = resolve({"dump_path": "d", "task": "tensor", "statistics": {"list": ["relu"], "summary_mode": "md4"}})
    assert c.list == ()
    assert [w for w in c.warnings if w.startswith("statistics.summary_mode: 'md4'") and "'tensor'" in w]


def test_scope_names_that_are_none_are_told() -> None:
    c = resolve({"dump_path": "d", "scope": ["conv1", "Torch.relu.0.forward"]})
    assert c.scope == ("conv1", "Torch.relu.0.forward")
    assert "'conv1' is not the full name" in c.warnings[0]


# ---------------- good ones
def test_arguments_win() -> None:
    file = {"task": "tensor", "level": "L7", "dump_path": "a", "step": [1], "statistics": {"list": ["relu"]}}
    c = resolve(file, task="statistics", level="mix", dump_path=Path("b"), step=None)
    assert (c.task, c.level, c.step, c.list) == ("statistics", "mix", {1}, ("relu",))
    assert c.dump_path == Path("b").absolute()
    # The beaten value was wrong, and that is worth a word; it stops nothing.
    assert [w for w in c.warnings if w.startswith("level: 'L7'") and "the argument wins" in w]


def test_one_value_alone_is_a_list_of_one() -> None:
    c = resolve({"rank": 1, "step": "4-5", "list": "relu", "data_mode": "input"})
    assert (c.rank, c.step, c.list, c.data_mode) == ({1}, {4, 5}, ("relu",), frozenset({"input"}))


def test_empty_and_null_mean_not_given() -> None:
    c = resolve(
        {
            "dump_path": "d",
            "rank": [],
            "scope": None,
            "statistics": {"data_mode": [], "list": None},
            "tensor": None,
        }
    )
    assert c == resolve(dump_path="d")


def test_home_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert resolve(dump_path="~/d").dump_path == Path("/home/someone/d")


def test_the_configuration_of_msprobe_is_taken() -> None:
    """msprobe's packaged config.json, as in 26.2: the keys are the interface."""
    c = resolve(
        {
            "task": "statistics", "dump_path": "./dump_path", "rank": [], "step": [], "level": "L1",
            "extra_info": True, "async_dump": False,
            "statistics": {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"},
            "tensor": {"scope": [], "list": [], "data_mode": ["all"]},
            "acc_check": {"white_list": [], "black_list": [], "error_data_path": "./"},
        }
    )  # fmt: skip
    assert c == Config()
    assert [w.partition(":")[0] for w in c.warnings] == ["acc_check"]


words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12).filter(
    str.strip
)


numbers = st.lists(
    st.builds(range, st.integers(0, 99), st.integers(0, 99), st.integers(1, 9)), max_size=4
).map(Numbers)


@st.composite
def configs(draw: st.DrawFn) -> Config:
    task: Any = draw(st.sampled_from(["statistics", "tensor", "structure"]))
    levels = ["L0", "L1", "mix", "L2", "debug"] if task != "structure" else ["L0", "mix", "L2"]
    name = st.builds(
        lambda n, i: f"Torch.{n}.{i}.forward", st.sampled_from(["relu", "sin"]), st.integers(0, 20)
    )
    level: Any = draw(st.sampled_from(levels))
    scope = draw(st.just(()) | st.tuples(name, name)) if level in ("L1", "mix") else ()
    sides = st.sets(st.sampled_from(["forward", "backward", "input", "output"]), min_size=1)
    return Config(
        task=task,
        level=level,
        dump_path=Path("/") / draw(st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True)),
        rank=draw(numbers),
        step=draw(numbers),
        scope=scope,
        list=tuple(draw(st.lists(words, max_size=3))),
        tensor_list=tuple(draw(st.lists(words, max_size=3))) if task == "statistics" else (),
        data_mode=frozenset(draw(st.just({"all"}) | sides)),
        summary_mode=draw(st.sampled_from(["statistics", "md5", "xor"])),
        precision=draw(st.sampled_from(["low", "high"])),
        extra_info=draw(st.booleans()),
        async_dump=draw(st.booleans()),
        async_bytes=draw(st.integers(1, 1 << 40)),
        risk_level=draw(st.sampled_from(["ALL", "FOCUS", "CORE"])),
        views=draw(st.booleans()),
        zero_count=draw(st.booleans()),
        overwrite=draw(st.booleans()),
        max_faults=draw(st.integers(1, 1000)),
        share=draw(st.booleans()),
        graph_taps=draw(st.sampled_from(["beside", "always"])),
        step_ends=draw(st.sampled_from(["update", "all", "last:1", "last:Adam", "calls:a.b:c.d"])),
        first_step=draw(st.just("auto") | st.integers(0, 99)),
        record_when=draw(st.sampled_from(["training", "grad"])),
        models=tuple(draw(st.lists(words, max_size=2))),
        keep=draw(st.none() | st.integers(1, 9).map(Keep)),
        export=draw(st.sampled_from([None, "parquet", "s3://bucket/run", "/tables"])),
    )


@given(configs())
def test_a_configuration_round_trips(config: Config) -> None:
    mapping = as_mapping(config)
    assert resolve(mapping) == config
    assert resolve(json.loads(json.dumps(mapping))) == config
    assert resolve(yaml.safe_load(yaml.safe_dump(mapping))) == config
    assert (
        resolve(None, **{k: getattr(config, k) for k in mapping if k != config.task}, **mapping[config.task])
        == config
    )


keys = st.sampled_from([*as_mapping(Config()), "statistics", "tensor", "acc_check", "lists"]) | st.text(
    max_size=5
)


@given(st.dictionaries(keys, json_values, max_size=5), st.dictionaries(keys, json_values, max_size=3))
def test_anything_is_a_config_or_a_config_error(file: dict[str, Any], section: dict[str, Any]) -> None:
    try:
        c = resolve({**file, "statistics": section})
    except ConfigError as e:
        assert e.problems
        assert all(p.where and p.what for p in e.problems)
    else:
        assert resolve(as_mapping(c)) == c


# ---------------- files
@pytest.mark.parametrize("name", ["c.json", "c.yaml", "c.YML"])
def test_files(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    tab = "\t" if name == "c.json" else " "  # JSON may be indented with tabs, YAML not
    lines = [
        "{",
        '"task": "tensor",',
        '"step": [0, "2-3"],',
        '"tensor": {',
        f'{tab}"list": ["é"],',
        '"data_mode": ["x"]}}',
    ]
    path.write_text("\n".join(lines), encoding="utf-8-sig")
    with pytest.raises(ConfigError) as caught:
        resolve(load(path))
    (problem,) = caught.value.problems
    assert problem.where == f"{path}:6 tensor.data_mode[0]"
    assert load(str(path))["tensor"]["list"] == ["é"]


def test_plain_yaml(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        "# a comment\ntask: statistics\nstep: 4-6\nstatistics:\n  list: [relu]\n  scope:\ntensor:\n"
    )
    c = resolve(load(path))
    assert (c.step, c.list, c.scope) == ({4, 5, 6}, ("relu",), ())
    path.write_text("# nothing but this\n")
    assert resolve(load(path)) == Config()


def test_a_number_in_yaml_is_the_one_that_is_written(tmp_path: Path) -> None:
    """YAML 1.1, which its parser knows, makes 8 of 010, and 90 of 1:30."""
    path = tmp_path / "c.yaml"
    path.write_text("step: [010, 08, 0_12, 0, 0x10]\nmax_bytes: 010\n")
    c = resolve(load(path))
    assert (c.step, c.max_bytes) == ({0, 8, 10, 12, 16}, 10)
    path.write_text("step: [1:30]\n")
    with pytest.raises(ConfigError, match=r"'1:30' is not a range\. Did you mean .1-30."):
        resolve(load(path))


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("c.json", '{"a": 1,\n "b": }', [":2", "line 2"]),
        ("c.json", "", [":1", "not JSON"]),
        ("c.json", "[1]", ["holds a list"]),
        ("c.json", "null", ["holds a NoneType"]),
        ("c.json", '{"step": 1, "step": 2}', ["'step'", "twice"]),
        ("c.json", '{"tensor": {"list": 1, "list": 2}}', ["'list'", "twice"]),
        ("c.json", "[" * 100_000, ["nested too deeply"]),
        ("c.json", '{"step": ' + "9" * 5000 + "}", ["not usable JSON"]),
        ("c.yaml", "a: [\n", [":2", "line 2"]),
        ("c.yaml", "a: 1\nb: 2\na: 3\n", [":3", "'a'", "line 1"]),
        ("c.yaml", "- 1\n", ["holds a list"]),
        ("c.yaml", "a: 1\n---\nb: 1\n", ["single document"]),
        ("c.yaml", "? [a]\n: 1\n", ["unhashable"]),
        ("c.yaml", "a: !!python/object:os.system x\n", [":1", "not usable YAML"]),
        ("c.yaml", "a: \x07", ["not usable YAML"]),
        ("c.toml", "", [".toml", "*.json"]),
    ],
)
def test_files_that_are_no_configuration(name: str, text: str, words: list[str], tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    said = str(caught.value)
    assert str(path) in said
    assert not [w for w in words if w not in said], said


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="UTF-8"):
        load(tmp_path / "config.json")
    with pytest.raises(ConfigError, match=r"no such file.*Did you mean 'config\.json'"):
        load(tmp_path / "confg.json")
    with pytest.raises(ConfigError, match="no readable directory"):
        load(tmp_path / "nowhere" / "config.json")
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(ConfigError, match="is a directory"):
        load(tmp_path / "folder.json")


# ---------------- ranks
@pytest.mark.parametrize(
    ("rank", "world", "words"),
    [
        ([], None, None),
        ([], 4, None),
        ([0, "1-3"], 4, None),
        ([0], None, ["no process group", "is dumped"]),
        ([2], None, ["nothing will be dumped", "RANK"]),
        ([4], 4, ["[4]", "4 processes", "ranks end at 3", "nothing will be dumped"]),
        ([0, "3-5"], 4, ["4-5", "only the others"]),
        ([1], 1, ["1 process,", "nothing"]),
    ],
)
def test_ranks_beyond_the_run(rank: Any, world: int | None, words: list[str] | None) -> None:
    said = check_rank(resolve(rank=rank), world)
    if words is None:
        assert said is None
    else:
        assert said is not None
        assert not [w for w in words if w not in said], said


# ---------------- suggestions
def test_nearest_among_many() -> None:
    names = [
        f"Functional.{api}.{i}.forward" for i in range(2500) for api in ("linear", "gelu", "dropout", "relu")
    ]
    assert nearest("Functional.linaer.77.forward", names)[0] == "Functional.linear.77.forward"
    assert nearest_names("lineer", names)[0] == "linear"
    assert nearest_names("RELU", names)[0] == "relu"
    assert nearest("qqq", names) == ()


@given(st.text(max_size=20), st.lists(st.text(max_size=20), max_size=20))
def test_nearest_gives_candidates(word: str, candidates: list[str]) -> None:
    found = nearest(word, candidates)
    assert len(found) <= 3
    assert set(found) <= set(candidates)
    if word in candidates:
        assert found[0].lower() == word.lower()


# ---------------- when, then


@pytest.mark.parametrize(
    ("item", "kept"),
    [
        ("non_finite", ("non_finite", "", "", 0.0)),
        (" non_finite( backward ) ", ("non_finite", "backward", "", 0.0)),
        ("norm(parameters_grad) > 1e3", ("norm", "parameters_grad", ">", 1000.0)),
        ("norm( parameters_grad )<=0.5", ("norm", "parameters_grad", "<=", 0.5)),
        ("spike(train/loss) >= 5", ("spike", "train/loss", ">=", 5.0)),
        ("SIGUSR1", ("signal", "SIGUSR1", "", 0.0)),
        ("file: /tmp/a b", ("file", "/tmp/a b", "", 0.0)),
        ({"file": "x"}, ("file", "x", "", 0.0)),
        ("package.module:judges.one", ("function", "package.module:judges.one", "", 0.0)),
    ],
)
def test_a_condition(item: Any, kept: tuple[Any, ...]) -> None:
    (found,) = resolve(when=item, level="mix").when
    assert (found.kind, found.subject, found.sign, found.limit) == kept
    assert resolve(when=[item], level="mix").when == (found,)
    assert conditions([str(found)], "when") == ((found,), ())


@pytest.mark.parametrize(
    ("item", "word"),
    [
        (3, "is no condition"),
        ("nonfinite", "'non_finite'"),
        ("non_finite(forwards)", "'forward'"),
        ("non_finite > 3", "is not known"),
        ("norm(parameter_grad) > 3", "'parameters_grad'"),
        ("norm(parameters_grad)", "compares nothing"),
        ("norm(parameters_grad) > much", "'much' is no number"),
        ("norm(parameters_grad) > nan", "'nan' is no number"),
        ("norm(parameters_grad) == 3", "not understood"),
        ("spike(loss) < 3", "above a number of times"),
        ("spike() > 3", "compares nothing"),
        ("SIGUSR3", "'SIGUSR1'"),
        ("SIGKILL", "is not known"),
        ("file:", "names no file"),
        ("__import__('os').system('x')", "not understood"),
        ("f(x)[0] > 1", "not understood"),
        ("a:b()", "not understood"),
        ("", "not understood"),
    ],
)
def test_no_condition(item: Any, word: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(when=["non_finite", item], level="mix")
    assert word in str(caught.value)
    assert {p.where for p in caught.value.problems} == {"argument when[1]"}
