"""`probe check`: a kernel that is wrong is named, honest ones are not, and what cannot be replayed is counted."""

from __future__ import annotations

import json
import math
import os
import re
import resource
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

torch = pytest.importorskip("torch")

from check_networks import FAULTS, NETWORKS, recorded, wrong  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from probe_analysis import check  # noqa: E402
from probe_analysis.cli.check import main  # noqa: E402
from probe_analysis.cli.diff import main as diff_main  # noqa: E402
from probe_analysis.replay.check import Check  # noqa: E402
from probe_analysis.replay.error import error_of  # noqa: E402
from probe_format.errors import FormatError, ProbeError  # noqa: E402
from probe_torch import PrecisionDebugger  # noqa: E402
from rank_dumps import changed  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

SOAK = bool(os.environ.get("PROBE_SOAK"))
#: Of the networks that need nothing but torch; all of them with PROBE_SOAK=1.
SAMPLE = list(NETWORKS) if SOAK else ["residual", "gru"]


def of(make: Any, folder: Path, **more: Any) -> Path:
    """A dump of a function of a leaf, whose result is summed."""

    def loss(model: nn.Module) -> Any:
        return make(*(x for _, x in sorted(model.named_parameters()))).square().sum()

    return recorded(
        lambda: (nn.ParameterDict({"a": torch.randn(6, 5), "b": torch.randn(6, 5)}), loss), folder, **more
    )


def named(found: Check, name: str) -> Any:
    return next(each for _, each in found.calls if each.call.name == name)


@pytest.mark.parametrize("network", SAMPLE)
def test_honest_kernels_are_right(tmp_path: Path, network: str) -> None:
    for n, dtype in enumerate((None, torch.bfloat16, torch.float16) if SOAK else (None,)):
        found = check(recorded(NETWORKS[network], tmp_path / str(n), dtype=dtype))
        assert found.first is None, found.sentence
        assert len(found.ranked) > 0.7 * len(found.calls), found.reasons
        assert not any(reason.startswith("it raises") for reason in found.reasons) or network == "mixtral"


@pytest.mark.parametrize("network", [name for name in FAULTS if name in SAMPLE])
def test_a_kernel_that_is_wrong_by_a_thousandth_is_first(tmp_path: Path, network: str) -> None:
    owner, name, recorded_as = FAULTS[network]
    with wrong(owner, name):
        folder = recorded(NETWORKS[network], tmp_path)
    found = check(folder)
    bad = {each.call.name for _, each in found.calls if each.wrong}
    assert bad and all(each.startswith(f"{recorded_as}.") and each.endswith("forward") for each in bad)
    assert {each.call.name for _, each in found.ranked[: len(bad)]} == bad
    assert found.first is not None
    assert re.search(r" is wrong: output\.0 is 0\.(1|099) % from the exact result", found.sentence)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_gradient_that_is_wrong_is_named_as_backward(tmp_path: Path, dtype: Any) -> None:
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient * (1.001 if dtype == torch.float32 else 1.1)

    right = F.gelu
    with patch.object(F, "gelu", lambda x: right(Wrong.apply(x))):
        folder = of(lambda a, b: F.gelu(a) * b, tmp_path, dtype=dtype)
    found = check(folder)
    assert [each.call.name for _, each in found.calls if each.wrong] == ["Functional.gelu.0.backward"]


def test_one_wrong_element_of_many_is_found(tmp_path: Path) -> None:
    """0.1 % of one of 30,000 elements, as a kernel's last tile has it, moves the norm by 6e-6 of it."""
    right = F.silu

    def silu(x: Any) -> Any:
        found = right(x).clone()
        found.view(-1).data[17] *= 1.01
        return found

    with patch.object(F, "silu", silu):
        folder = of(lambda a, b: F.silu(a.repeat(100, 10)), tmp_path)
    found = check(folder)
    assert found.first is not None and found.first[1].call.name == "Functional.silu.0.forward"


def test_errors_are_those_of_an_arithmetic_with_more_digits(tmp_path: Path) -> None:
    mpmath = pytest.importorskip("mpmath")
    found = check(of(lambda a, b: (a @ b.T).softmax(-1), tmp_path))
    call = named(found, "Tensor.softmax.0.forward")
    record = call.call.record
    x, y = (record.tensor(slot).load() for slot in ("input_args.0", "output.0"))
    mpmath.mp.dps = 40
    exact = [[mpmath.exp(v) for v in row] for row in x.tolist()]
    exact = [[v / sum(row) for v in row] for row in exact]
    apart = [
        (mpmath.mpf(v) - w) ** 2
        for one, two in zip(y.tolist(), exact, strict=True)
        for v, w in zip(one, two, strict=True)
    ]
    size = [w**2 for row in exact for w in row]
    assert call.error.relative == pytest.approx(float(mpmath.sqrt(sum(apart) / sum(size))), rel=1e-6)


def test_a_difference_of_equals_is_measured_by_what_it_is_of(tmp_path: Path) -> None:
    """The exact sum is near zero, and the recorded one all rounding: far off as a share, right by what was summed."""

    def cancels(a: Any, b: Any) -> Any:
        return torch.cat([a, -a * (1 + 1e-7)]).sum(0)

    found = check(of(cancels, tmp_path))
    assert found.first is None


def test_what_cannot_be_replayed_is_counted_with_its_reason(tmp_path: Path) -> None:
    def all_of_it(a: Any, b: Any) -> Any:
        x = F.dropout(a, 0.5) + torch.bernoulli(b.sigmoid()) + torch.linalg.norm(b)
        return x + (a > b) + torch.einsum("ij,ij->i", a, b)[:, None].argmax()

    found = check(of(all_of_it, tmp_path))
    why = {each.call.name: each.why for _, each in found.calls}
    assert (
        why["Functional.dropout.0.forward"] == why["Torch.bernoulli.0.forward"] == "it draws random numbers"
    )
    assert why["Torch.norm.0.forward"] == "its name stands for linalg.norm and norm"
    assert why["Tensor.__gt__.0.forward"] == "it returns no floating-point tensor"
    assert why["Torch.einsum.0.forward"] == ""
    assert found.reasons["it draws random numbers"] >= 2
    assert sum(found.reasons.values()) + len(found.ranked) == len(found.calls)


def test_functions_that_write_in_place_are_replayed(tmp_path: Path) -> None:
    found = check(of(lambda a, b: F.relu((a * b).mul_(3.0).add_(a), inplace=True) @ b.T, tmp_path))
    assert {"Tensor.mul_.0.forward", "Tensor.add_.0.backward", "Functional.relu.0.backward"} <= {
        each.call.name for _, each in found.ranked
    }
    assert found.first is None


def test_a_dump_without_values_says_what_to_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = of(lambda a, b: F.gelu(a @ b.T), tmp_path, task="statistics")
    assert main([str(folder)]) == 2
    said = capsys.readouterr().err
    assert (
        "the values of its tensors are not recorded (task tensor)" in said
        and "Record with task: tensor" in said
    )
    modules = of(lambda a, b: F.gelu(a @ b.T), tmp_path / "L0", level="L0")
    with pytest.raises(FormatError, match="has no call of a function"):
        check(modules)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with wrong(F, "gelu"):
        folder = str(of(lambda a, b: F.gelu(a @ b.T), tmp_path / "dump"))
    assert main([folder]) == 1
    said = capsys.readouterr().out
    assert said.startswith("Functional.gelu.0.forward is wrong: output.0 is 0.1 % from the exact result, ")
    assert "test_check.py, line" in said
    assert main([folder, "--format", "json"]) == 1
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert rows[0]["call"] == "Functional.gelu.0.forward" and rows[0]["wrong"] is True
    assert rows[0]["units"] > rows[0]["limit"] > rows[1]["units"] and rows[0]["not_replayed"] == ""


@pytest.mark.parametrize(
    "name", ["Torch.load", "Functional.exec", "Torch.from_file", "Tensor.__class__", "Torch.hub.load"]
)
def test_what_is_not_in_the_list_is_never_called(tmp_path: Path, name: str) -> None:
    folder = of(lambda a, b: a * b, tmp_path)
    with changed(folder / "step0/rank") as data:
        data[f"{name}.0.forward"] = data.pop(next(iter(data)))
    assert named(check(folder), f"{name}.0.forward").why == "it is not in the list of functions"


@pytest.mark.parametrize("name", ["../dump.json", "/etc/hostname", "..", "a/b"])
def test_a_file_outside_the_dump_refuses_all_of_it(tmp_path: Path, name: str) -> None:
    folder = of(lambda a, b: a * b, tmp_path)
    with changed(folder / "step0/rank") as data:
        next(iter(data.values()))["input_args"][0]["data_name"] = name
    with pytest.raises(FormatError, match="is not a file name"):
        check(folder)


def test_sizes_beyond_memory_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    folder = of(lambda a, b: torch.stack([(a * b).repeat(1, 2)]), tmp_path)
    with changed(folder / "step0/rank") as data:
        data["Tensor.__mul__.0.forward"]["input_args"][0]["shape"] = [1 << 20, 1 << 20]
        data["Tensor.repeat.0.forward"]["input_args"][1:] = [{"type": "int", "value": 1 << 14}] * 2
        data["Torch.stack.0.forward"]["output"][0]["shape"] = [1]
    found = check(folder, memory=1 << 30)
    assert named(found, "Tensor.__mul__.0.forward").why.startswith(
        "it needs too much memory (--memory): about "
    )
    assert "allocate" in named(found, "Tensor.repeat.0.forward").why
    assert "is not of its record" in named(found, "Torch.stack.0.forward").why


def test_a_damaged_file_is_counted(tmp_path: Path) -> None:
    folder = of(lambda a, b: F.gelu(a) * b, tmp_path)
    file = next(folder.rglob("Functional.gelu.0.forward.output.0.pt"))
    content = file.read_bytes()
    file.unlink()  # another name of the same file stays whole
    file.write_bytes(content[:-40])
    found = check(folder)
    assert named(found, "Functional.gelu.0.forward").why.startswith("a file is damaged: ")
    assert named(found, "Tensor.__mul__.0.forward").why == ""


LEAVES = st.recursive(
    st.none() | st.booleans() | st.integers(-4, 1 << 40) | st.floats() | st.text(max_size=5),
    lambda x: (
        st.lists(x, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "value", "dtype", "shape", "data_name"]), x)
    ),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return of(
        lambda a, b: F.layer_norm(a.view(2, 3, 5), (5,)).flatten(0, 1) @ b.T, tmp_path_factory.mktemp("good")
    )


@settings(deadline=None, max_examples=300 if SOAK else 20)
@given(data=st.data())
def test_whatever_stands_in_a_record_ends_in_an_error_of_ours(good: Path, data: st.DataObject) -> None:
    path = next(good.rglob("dump.json"))
    text = path.read_text()
    document = json.loads(text)
    record = document["data"][data.draw(st.sampled_from(sorted(document["data"])))]
    part = data.draw(st.sampled_from(sorted(record)))
    if data.draw(st.booleans()) and isinstance(record[part], list) and record[part]:
        record[part][data.draw(st.integers(0, len(record[part]) - 1))] = data.draw(LEAVES)
    else:
        record[part] = data.draw(LEAVES)
    try:
        path.write_text(json.dumps(document))
        check(good, memory=1 << 28)
    except ProbeError:
        pass
    finally:
        path.write_text(text)


@given(values=st.lists(st.floats(width=16, allow_nan=False), min_size=1, max_size=20))
def test_an_exact_result_has_no_error(values: list[float]) -> None:
    import numpy as np

    exact = np.array(values)
    error = error_of(exact.astype(np.float16), exact, exact, "torch.float16", 2.0**-11)
    assert (error.relative, error.units, error.worst) == (0.0, 0.0, 0.0)
    beyond = error_of(
        np.array([math.inf], np.float16), np.array([1e9]), np.array([1e9]), "torch.float16", 2.0**-11
    )
    assert beyond.units == 0.0


def good_and_bad(folder: Path, **more: Any) -> tuple[Path, Path]:
    """Two dumps of a function, in the second of which its kernel is wrong."""
    good = of(lambda a, b: F.gelu(a @ b.T), folder / "good", **more)
    with wrong(F, "gelu", 0.03):
        return good, of(lambda a, b: F.gelu(a @ b.T), folder / "bad", **more)


def test_diff_says_which_side_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = good_and_bad(tmp_path)
    assert diff_main([str(good), str(bad), "--replay"]) == 1
    said = capsys.readouterr().out
    assert "bad's gelu is 3 % from the exact result, good's " in said and "\n  bad is wrong: " in said
    assert diff_main([str(bad), str(good), "--replay", "--format", "json"]) == 1
    told = capsys.readouterr()
    assert json.loads(told.out) and "bad's gelu is 3 % from the exact result, good's " in told.err


def test_diff_says_what_to_record_where_no_values_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = good_and_bad(tmp_path, task="statistics")
    assert diff_main([str(good), str(bad), "--replay"]) == 1
    said = capsys.readouterr().out
    assert "the values of its tensors are not recorded (task tensor)" in said
    text = said.partition("with --replay:\n")[2]
    config = tmp_path / "decide.yaml"
    config.write_text(text.replace("./decide", str(tmp_path / "decide")))
    folder = recorded_by(config)
    assert {each.call.name for _, each in check(folder).calls} == {
        "Functional.gelu.0.forward", "Functional.gelu.0.backward",
    }  # fmt: skip


def recorded_by(config: Path) -> Path:
    x = torch.randn(4, 4, requires_grad=True)
    with PrecisionDebugger(config_path=str(config)) as debugger:
        debugger.start()
        F.gelu(F.silu(x)).sum().backward()
        debugger.stop()
        debugger.step()
    return config.with_suffix("")


def test_a_damaged_gradient_leaves_the_forward_pass_checked(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    folder = of(lambda a, b: F.gelu(a) * b, tmp_path)
    next(folder.rglob("Functional.gelu.0.backward.output.0.pt")).unlink()
    found = check(folder)
    assert [named(found, f"Functional.gelu.0.{way}").why[:17] for way in ("forward", "backward")] == [
        "", "a file is damaged",
    ]  # fmt: skip
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
