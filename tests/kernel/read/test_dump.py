"""Opening kernel dumps: real ones, and every layout of the documents."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import probe_kernel
import pytest
from probe_format.errors import DamagedError, FormatError
from trees import CONV, TIME, TREES, close, conv, table, tensor

LOOP = Path(__file__).parents[1] / "data" / "loop"


# a real dump


def test_a_real_dump_opens_whole() -> None:
    dump = probe_kernel.open(LOOP)
    assert list(dump.problems) == []
    (rank,) = dump.ranks
    assert rank.number == 0
    assert [(i.folder.net, i.folder.graph, i.folder.iteration) for i in rank.iterations] == [
        ("Net", 0, 0), ("Net", 1, 1), ("Net", 2, 1), ("Net", 6, 2),
    ]  # fmt: skip
    assert rank.metadata["config"] == {"device_target": "CPU", "ms_version": "2.10.0"}
    assert rank.metadata["data_dump"]["common_dump_settings"]["net_name"] == "Net"
    assert rank.history == {0: (0, 1), 1: (2, 1), 6: (2,)}
    assert rank.order[1] == ("Expand/_SumExt/ReduceSum-op0", "Expand/_LessScalar/Less-op0")
    assert sorted(rank.graphs) == [0, 1, 2, 6]
    # Every file is some slot's, and every slot loads.
    slots = [slot for i in dump.iterations for k in i.kernels for slot in k.slots]
    assert {slot.file for slot in slots} == set(LOOP.glob("rank_0/Net/*/*/*.npy"))
    for slot in slots:
        assert slot.load().shape == slot.shape


def test_kernels_their_inputs_and_outputs() -> None:
    iteration = probe_kernel.open(LOOP).ranks[0].iterations[0]
    concat = iteration.kernel("Default/Concat-op0")
    assert (concat.op_type, concat.name, concat.count) == ("Concat", "Default_Concat-op0", 0)
    a, b, axis = (slot.load() for slot in concat.inputs)
    np.testing.assert_array_equal(concat.slot("output").load(), np.concatenate([a, b], int(axis)))
    add = iteration.kernel("Add-op0")
    np.testing.assert_array_equal(add.outputs[0].load(), add.inputs[0].load() + add.inputs[1].load())
    assert [str(slot) for slot in iteration.kernel("ReduceSum-op0").slots] == [
        "input.0",
        "input.2",
        "input.3",
        "output.0",
    ]
    cast = iteration.kernel("Cast-op0")
    assert (cast.slot("output").dtype, cast.slot("output").format) == ("BFloat16", "DefaultFormat")
    assert cast.slot("output").statistics["nan count"] == 1
    assert [k.name for k in iteration.kernels if k.is_parameter] == ["a", "b"]
    assert all(not k.is_parameter for k in iteration.kernels[:-2])


def test_errors_name_what_is_near() -> None:
    iteration = probe_kernel.open(LOOP).ranks[0].iterations[0]
    with pytest.raises(KeyError, match=r"no kernel 'Cnocat-op0'.*Concat-op0"):
        iteration.kernel("Cnocat-op0")
    with pytest.raises(KeyError, match=r"no output.3; it has input.0, input.1, input.2, output.0"):
        iteration.kernel("Concat-op0").slot("output", 3)
    with pytest.raises(KeyError, match=r"ran 1 times.*no count 4"):
        iteration.kernel("Concat-op0", count=4)
    with pytest.raises(KeyError, match="no rank 7; it has"):
        probe_kernel.open(LOOP).rank(7)


def test_a_loop_runs_a_kernel_several_times_in_an_iteration() -> None:
    loop = probe_kernel.open(LOOP).ranks[0].iterations[2]  # while x.sum() < 10: x = x * 2
    runs = [kernel for kernel in loop.kernels if kernel.op_type == "Mul"]
    assert [kernel.count for kernel in runs] == [0, 1, 2]
    assert [kernel.slot("output").load().tolist() for kernel in runs] == [[2, 2], [4, 4], [8, 8]]
    assert loop.kernel("Expand/_Muls/Mul-op0", count=2) is runs[2]


def test_names_too_long_for_the_file_system() -> None:
    iteration = probe_kernel.open(LOOP).ranks[0].iterations[3]
    relu = iteration.kernel("ReLU-op0")
    assert len(relu.name) > 200
    assert all(path.stem.isdigit() for path in relu.files)
    x = relu.slot("input").load()
    np.testing.assert_array_equal(relu.slot("output").load(), np.where(np.isnan(x), 0, np.maximum(x, 0)))


@pytest.mark.parametrize("below", ["", "rank_0", "rank_0/Net", "rank_0/Net/0/0"])
def test_any_folder_of_the_tree_can_be_opened(below: str) -> None:
    dump = probe_kernel.open(LOOP / below)
    first = dump.ranks[0].iterations[0]
    assert (first.folder.rank, first.folder.graph, first.folder.iteration) == (0, 0, 0)
    assert len(first.kernels) == 9
    assert sorted(dump.ranks[0].graphs) == [0, 1, 2, 6]


# every layout


@pytest.mark.parametrize("layout", TREES)
def test_each_layout_is_recognised(tmp_path: Path, layout: str) -> None:
    folder, form, facts = TREES[layout]
    conv(tmp_path / folder, form=form)
    dump = probe_kernel.open(tmp_path)
    assert list(dump.problems) == []
    (iteration,) = dump.iterations
    assert iteration.folder.layout == layout
    assert {key: getattr(iteration.folder, key) for key in facts} == facts
    (kernel,) = iteration.kernels
    assert (kernel.task, kernel.stream, kernel.timestamp) == (2, 7, TIME)
    assert [slot.load()[0, 0] for slot in kernel.slots] == [0, 1, 2]
    assert iteration.label


def test_ranks_and_steps_in_order(tmp_path: Path) -> None:
    for rank in (10, 2):
        for step in (10, 9):
            conv(tmp_path / f"rank_{rank}/Net/0/{step}")
    dump = probe_kernel.open(tmp_path)
    assert [rank.number for rank in dump.ranks] == [2, 10]
    assert [i.folder.number for i in dump.rank(10).iterations] == [9, 10]


def test_devices_of_an_o2_tree_are_ranks(tmp_path: Path) -> None:
    for step in (0, 1):
        for device in (0, 1):
            conv(tmp_path / f"{step}/2024010203040{step}/{device}/model/1/0", form=".NCHW.float16.npy")
    dump = probe_kernel.open(tmp_path)
    assert [(rank.number, [i.folder.step for i in rank.iterations]) for rank in dump.ranks] == [
        (0, [0, 1]),
        (1, [0, 1]),
    ]


def test_what_lies_beside_is_no_problem(tmp_path: Path) -> None:
    conv(tmp_path / "0/20240102030405/6/m/1/0")
    (tmp_path / "acl_dump_6.json").write_text("{}")
    (tmp_path / "notes.txt").write_text("mine")
    conv(tmp_path / "step0/20240102030405/6")
    (tmp_path / "step0/kernel_config_99.json").write_text("{}")
    dump = probe_kernel.open(tmp_path)
    assert list(dump.problems) == []
    assert len(list(dump.iterations)) == 2


def test_nothing_there_is_said_in_words(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"no kernel dump in it: no folder like rank_0/net/0/0"):
        probe_kernel.open(tmp_path)
    (tmp_path / "rank_0").mkdir()
    with pytest.raises(FormatError, match=r"Did you mean .*rank_0"):
        probe_kernel.open(tmp_path / "rank_1")


# what is in the folders


def test_unknown_and_damaged_files_are_reported(tmp_path: Path) -> None:
    folder = tmp_path / "rank_0/Net/0/0"
    conv(folder)
    (folder / "readme.txt").write_text("?")
    (folder / "123456.npy").write_bytes(b"renamed, and no mapping")
    (folder / "mapping.csv").write_text("77.npy,Add.x.0.0.1.input.0.ND.npy\nnonsense\n")
    (tmp_path / "rank_0/stray.bin").write_bytes(b"")
    whole = next(folder.glob("Conv2D*output.0*"))
    whole.write_bytes(whole.read_bytes()[:-1])
    dump = probe_kernel.open(tmp_path)
    problems = "\n".join(dump.problems)
    assert "readme.txt is unknown: it has no kernel file's name" in problems
    assert "123456.npy is unknown: it was renamed, and mapping.csv does not have its true name" in problems
    assert "line 1, names 77.npy, which is not in the folder" in problems
    assert "line 2, is not 'file,true name': 'nonsense'" in problems
    assert "stray.bin is unknown" in problems
    assert len(problems.splitlines()) == 5
    (kernel,) = next(dump.iterations).kernels
    with pytest.raises(DamagedError, match="cut short"):
        kernel.slot("output").load()
    assert kernel.slot("input").load().shape == (2, 3)


def test_a_folder_with_only_unknown_files_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "rank_0/Net/0/0").mkdir(parents=True)
    (tmp_path / "rank_0/Net/0/0/mystery.dat").write_text("?")
    dump = probe_kernel.open(tmp_path)
    assert "mystery.dat is unknown" in "\n".join(dump.problems)


def test_statistics_alone(tmp_path: Path) -> None:
    lines = (f'Conv2D,{CONV},0,0,{TIME},input,0,24,float32,"(2,3)",5,7.5,',
             f'Conv2D,{CONV},0,0,{TIME + 1},output,0,24,bfloat16,"(3,2)",6,8.5,', "broken")  # fmt: skip
    table(tmp_path / "rank_0/Net/0/0", *lines, more="Max Value,L2Norm Value")
    dump = probe_kernel.open(tmp_path)
    (iteration,) = dump.iterations
    (kernel,) = iteration.kernels
    out = kernel.slot("output")
    assert (out.dtype, out.shape, out.file) == ("bfloat16", (3, 2), None)
    assert out.statistics == {"max": 6, "l2norm": 8.5}
    with pytest.raises(FormatError, match=r"only its statistics.*saved_data"):
        out.load()
    assert "line 4" in "\n".join(dump.problems)


def test_statistics_beside_tensors_go_to_their_slots_also_in_a_loop(tmp_path: Path) -> None:
    folder = tmp_path / "rank_0/Net/0/0"
    conv(folder, start=TIME)
    conv(folder, start=TIME + 100)
    lines = (  # the statistics have timestamps of their own
        f'Conv2D,{CONV},2,7,{TIME + 100 * run + 50 + at},{io},{slot},12,float16,"(2,3)",{10 * run + at},'
        for run in (0, 1)
        for at, (io, slot) in enumerate([("input", 0), ("input", 1), ("output", 0)])
    )
    table(folder, *lines)
    first, second = next(probe_kernel.open(tmp_path).iterations).kernels
    assert [slot.statistics["max"] for slot in first.slots] == [0, 1, 2]
    assert [slot.statistics["max"] for slot in second.slots] == [10, 11, 12]
    assert [slot.load()[0, 0] for slot in second.slots] == [0, 1, 2]


def test_executions_that_do_not_agree_are_reported(tmp_path: Path) -> None:
    folder = tmp_path / "rank_0/Net/0/0"
    conv(folder, start=TIME)
    conv(folder, start=TIME + 100)
    table(folder, f'Conv2D,{CONV},2,7,{TIME},input,0,12,float16,"(2,3)",1,')
    assert "ran 2 times by its files and 1 times by statistic.csv" in "\n".join(
        probe_kernel.open(tmp_path).problems
    )


def test_arguments_overflow_and_device_statistics(tmp_path: Path) -> None:
    folder = tmp_path / "rank_0/Net/0/0"
    conv(folder)
    (folder / f"Conv2D.{CONV}.json").write_text('{"transpose_a": "False"}')
    status = {
        "AI Core": {"task_id": 2, "stream_id": 7, "status": 14},
        "L2 Atomic Add": {"task_id": 9, "status": 0},
    }
    (folder / "Opdebug.Node_OpDebug.2.7.16.output.0.json").write_text(json.dumps(status))
    (folder / f"Conv2D.{CONV}.2.7.{TIME}.csv").write_text(
        "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value\nOutput,0,12,FLOAT16,ND,2x3,2\n"
    )
    (iteration,) = probe_kernel.open(tmp_path).iterations
    assert iteration.problems == ()
    (kernel,) = iteration.kernels
    assert kernel.arguments == {"transpose_a": "False"}
    assert kernel.slot("output").statistics == {"max": 2}
    (overflow,) = iteration.overflows
    assert overflow.tasks == ((2, 7),)
    assert overflow.units["AI Core"]["status"] == 14


def test_raw_files_take_their_shape_from_the_statistics(tmp_path: Path) -> None:
    folder = tmp_path / "rank_0/20240102030405/step_0"
    tensor(folder, "Cast.c.1.2.16.output.0.ND.bfloat16", np.array([0x3F80, 0xC000] * 3, np.uint16))
    (folder / "statistic.csv").write_text(
        "Op Type,Op Name,Task ID,Stream ID,Timestamp,Input/Output,Slot,Data Size,Data Type,Format,Shape,Max Value\n"
        'Cast,c,1,2,16,output,0,12,BF16,ND,"(3,2)",1\n'
    )
    slot = next(probe_kernel.open(tmp_path).iterations).kernels[0].slot("output")
    np.testing.assert_array_equal(slot.load(), [[1, -2]] * 3)


def test_bin_files_that_cannot_be_read_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, name: object) -> tuple[()]:
        raise FormatError(f"{path.name} has a form that nobody knows")

    monkeypatch.setitem(probe_kernel.read.loaders.READERS, "bin", refuse)
    folder = tmp_path / "0/20240102030405/6/model/1/0"
    tensor(folder, f"Conv2D.{CONV}.2.7.{TIME}", np.zeros(3, np.uint8))
    assert "a form that nobody knows" in "\n".join(probe_kernel.open(tmp_path).problems)


def test_opening_reads_no_values(tmp_path: Path) -> None:
    folder = tmp_path / "rank_0/Net/0/0"
    conv(folder)
    for path in folder.iterdir():
        path.write_bytes(b"garbage")
    (iteration,) = probe_kernel.open(tmp_path).iterations
    assert len(iteration.kernels) == 1  # names alone tell
    with pytest.raises(DamagedError):
        iteration.kernels[0].slots[0].shape  # noqa: B018


def test_a_damaged_graph_and_metadata_are_reported(tmp_path: Path) -> None:
    shutil.copytree(LOOP, tmp_path / "d")
    (tmp_path / "d/rank_0/graphs/ms_output_trace_code_graph_0.ir").write_text("nothing\n")
    (tmp_path / "d/rank_0/.dump_metadata/config.json").write_text("{")
    (tmp_path / "d/rank_0/execution_order/ms_global_execution_order_graph_0.csv").write_text("one\n")
    problems = "\n".join(probe_kernel.open(tmp_path / "d").problems)
    assert "has no operators in it" in problems
    assert "config.json" in problems
    assert "one iteration number a line" in problems


def test_a_folder_that_cannot_be_opened_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conv(tmp_path / "rank_0/Net/0/0")
    conv(tmp_path / "rank_0/Net/0/1")
    close(tmp_path / "rank_0/Net/0/1", monkeypatch)
    with pytest.raises(PermissionError, match="Net/0/1"):
        probe_kernel.open(tmp_path)


def test_executions_go_by_time_not_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "rank_0/Net/0/0"
    for time, value in ((999, 1.0), (1001, 2.0)):  # "1001" stands before "999" in the folder
        tensor(folder, f"Mul.Default_Mul-op0.0.0.{time}.output.0.ND.Float32.npy", np.float32(value))
    runs = next(probe_kernel.open(tmp_path).iterations).kernels
    assert [(k.count, k.timestamp, k.slot("output").load().item()) for k in runs] == [
        (0, 999, 1.0),
        (1, 1001, 2.0),
    ]


def test_an_iteration_of_which_nothing_was_dumped_is_there(tmp_path: Path) -> None:
    conv(tmp_path / "rank_0/Net/0/0")
    (tmp_path / "rank_0/Net/0/1").mkdir()
    assert [len(i.kernels) for i in probe_kernel.open(tmp_path).iterations] == [1, 0]


def test_slots_that_no_kernel_has(tmp_path: Path) -> None:
    """A list with so many places would fill the memory (export)."""
    folder = tmp_path / "rank_0/Net/0/0"
    tensor(folder, "Cast.c.0.0.16.input.999999999999.DefaultFormat.Float32.npy")
    table(folder, *(f'Cast,c,0,0,16,input,{slot},4,float32,"(1)",1,' for slot in (4000000000, -1, 1)))
    (iteration,) = probe_kernel.open(tmp_path).iterations
    assert [slot.index for kernel in iteration.kernels for slot in kernel.slots] == [1]
    assert len(iteration.problems) == 3
