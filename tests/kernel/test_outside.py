"""Nothing that a dump says, and no link planted below ``-o``, makes a command write (or look) anywhere else."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import probe_kernel
import pytest
from binfiles import block, made, written
from probe_format.errors import FormatError
from probe_format.layout import TENSORS
from probe_kernel import cli
from probe_kernel.control.control_file import write_settings
from probe_kernel.convert.destination import Destination
from probe_kernel.read.listing import read_mapping
from trees import CONV, TIME, conv, table, tensor

FLOATS = made(1, 2, (3,), np.float32([1, 2, 3]).tobytes())
ABROAD = [
    "../../evil/Op.x.1.2.3",
    "/tmp/probe-evil/Op.x.1.2.3",
    "..",
    ".",
    "Op.x\0y.1.2.3",
    "a/../../Op.x.1.2.3",
    "..\\..\\Op.x.1.2.3/..",
]


def everything(folder: Path) -> dict[str, bytes]:
    """Every file below, links included as what they are."""
    found: dict[str, bytes] = {}
    for top, below, files in os.walk(folder):
        for name in [*below, *files]:
            path = Path(top, name)
            key = str(path.relative_to(folder))
            if path.is_symlink():
                found[key] = os.fsencode(os.readlink(path))
            elif path.is_file():
                found[key] = path.read_bytes()
    return found


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A folder with a file that a planted link leads to."""
    folder = tmp_path / "victim"
    folder.mkdir()
    (folder / "precious").write_text("precious")
    return folder


def unharmed(victim: Path) -> bool:
    return everything(victim) == {"precious": b"precious"}


# -- names from the dump -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ABROAD)
@pytest.mark.parametrize("whole", [True, False], ids=["folder", "file"])
def test_a_true_name_that_leads_outside_is_refused(
    name: str, whole: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "deep/deeper/in"
    source.mkdir(parents=True)
    path = written(source, FLOATS, "0001")
    other = written(source, FLOATS)
    (source / "mapping.csv").write_text(f"0001,{name}\n")
    out = tmp_path / "deep/deeper/out"
    assert cli.main(["convert", str(source if whole else path), "-o", str(out)]) == 3
    err = capsys.readouterr().err
    assert "0001" in err
    made_files = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    ours = {f"deep/deeper/in/{p}" for p in ("0001", "mapping.csv", other.name)}
    for path in made_files - ours:
        assert path.startswith("deep/deeper/out/") and path.count("/") == 3
    for array in out.glob("*.npy"):
        np.testing.assert_array_equal(np.load(array), [1, 2, 3])
    assert sum(1 for _ in out.glob("*.npy")) == 1


def test_a_true_name_that_no_file_system_takes_is_shortened(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    written(source, FLOATS, "0001")
    long = f"Op.{'x' * 5000}.1.2.3"
    (source / "mapping.csv").write_text(f"0001,{long}\n")
    assert cli.main(["convert", str(source), "-o", str(tmp_path / "out")]) == 0
    assert list(read_mapping(tmp_path / "out")[0].values()) == [f"{long}.output.0.npy"]


@pytest.mark.parametrize("name", ["..", "../x", "a/b.npy", "/etc/x.npy", "a\0.npy", "a\n.npy", "", "."])
def test_no_such_name_is_written(name: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="is not a name for a file there"):
        Destination().write(tmp_path, name, tmp_path, [b"x"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("operator", ["a/../..", "a/..", "x/\0", "x/a\nb", "x/" + "y" * 300])
def test_names_from_a_header_stay_in_the_folder(operator: str, tmp_path: Path) -> None:
    content = made(1, 2, (3,), np.float32([1, 2, 3]).tobytes())
    header_length = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + header_length] + block(6, operator.encode())  # the last one counts
    path = written(tmp_path, len(header).to_bytes(8, "little") + header + content[8 + header_length :])
    cli.main(["convert", str(path), "-o", str(tmp_path / "out"), "--type", "msnpy"])
    outside = {p.name for p in tmp_path.iterdir()} - {"out", path.name}
    assert outside == set()
    assert all(p.parent == tmp_path / "out" for p in (tmp_path / "out").rglob("*"))


def test_a_mapping_looks_at_nothing_but_its_folder(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "mapping.csv").write_text(
        f"../secret,Op.x.1.2.3\n{'z' * 5000},Op.x.1.2.4\n/etc/passwd,Op.x.1.2.5\n"
    )
    names, problems = read_mapping(folder)
    assert names == {} and len(problems) == 3
    assert all("not in the folder" in problem for problem in problems)


def test_names_in_a_table_name_no_file(tmp_path: Path) -> None:
    """statistic.csv may call an operator anything: it is a text in dump.json, and no path."""
    conv(tmp_path / "in/rank_0/Net/0/0")
    table(tmp_path / "in/rank_0/Net/0/0", '../../x,/etc/passwd,1,2,3,input,0,4,float32,"(1)",1')
    assert cli.main(["export", str(tmp_path / "in"), "-o", str(tmp_path / "out")]) == 0
    assert {p.name for p in tmp_path.iterdir()} == {"in", "out"}
    names = {p.name for p in (tmp_path / "out/step0/rank0").iterdir()}
    assert names == {"dump.json", "stack.json", "construct.json", "report.json", TENSORS}


# -- links below -o ----------------------------------------------------------------------------------------


def planted(out: Path, victim: Path, name: str, kind: str) -> None:
    """Make a link below ``out`` to the victim: to its folder, or to its file, or a second name of that."""
    (out / name).parent.mkdir(parents=True, exist_ok=True)
    if kind == "hard":
        os.link(victim / "precious", out / name)
    else:
        (out / name).symlink_to(victim / "precious" if kind == "file" else victim)


SHORT = f"Conv2D.{CONV}.2.7.{TIME}"
LONG = f"Op.{'y' * 245}.1.2.3"
BELOW = "0/20240102030405/6/model/1/0"
RECORD = f"Kernel.Conv2D.{CONV}.0.forward.input.0.npy"
PLANTED = {
    "convert": [
        (f"{BELOW}/{SHORT}.output.0.npy", "file"), (f"{BELOW}/{SHORT}.output.0.npy", "hard"),
        (f"{BELOW}/mapping.csv", "file"), (f"{BELOW}/mapping.csv", "hard"), ("0", "folder"),
        ("0/20240102030405/6", "folder"), (BELOW, "folder"), (f"{BELOW}/mapping.csv", "folder"),
    ],
    "statistics": [
        ("rank_0/Net/0/0/statistic.csv", "file"), ("rank_0/Net/0/0/.tmp-statistic.csv", "file"),
        ("rank_0/Net/0/0/.tmp-statistic.csv", "hard"),
        ("rank_0/Net/0/0/.tmp-PID-statistic.csv", "file"), ("rank_0", "folder"),
        ("rank_0/Net/0/0", "folder"),
    ],
    "export": [
        ("step0/rank0/dump.json", "file"), ("step0/rank0/stack.json", "file"), ("step0/rank0/report.json", "file"),
        ("step0/rank0/construct.json", "hard"), (f"step0/rank0/{TENSORS}/{RECORD}", "file"),
        (f"step0/rank0/{TENSORS}/{RECORD}", "hard"), ("step0", "folder"), ("step0/rank0", "folder"),
        (f"step0/rank0/{TENSORS}", "folder"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("command", "name", "kind"), [(command, *plant) for command in PLANTED for plant in PLANTED[command]]
)
def test_a_command_follows_no_planted_link(
    command: str, name: str, kind: str, tmp_path: Path, victim: Path
) -> None:
    if command == "convert":
        folder = tmp_path / "in" / BELOW
        folder.mkdir(parents=True)
        written(folder, FLOATS, SHORT)
        written(folder, FLOATS, LONG)
    else:
        conv(tmp_path / "in/rank_0/Net/0/0")
    planted(tmp_path / "out", victim, name.replace("PID", f"{os.getpid()}"), kind)
    cli.main([command, str(tmp_path / "in"), "-o", str(tmp_path / "out")])
    assert unharmed(victim)
    if "/.tmp-" in name:
        assert (tmp_path / "out/rank_0/Net/0/0/statistic.csv").read_text().count("\n") == 4


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    conv(tmp_path / "in/rank_0/Net/0/0")
    assert cli.main(["statistics", str(tmp_path / "in"), "-o", str(tmp_path / "out")]) == 0
    assert cli.main(["export", str(tmp_path / "in"), "-o", str(tmp_path / "out")]) == 0
    assert (tmp_path / "disk/rank_0/Net/0/0/statistic.csv").is_file()


def test_the_control_file_replaces_a_link(tmp_path: Path, victim: Path) -> None:
    (tmp_path / "kernel_kbyk_dump.json").symlink_to(victim / "precious")
    (tmp_path / f".tmp-{os.getpid()}-kernel_kbyk_dump.json").symlink_to(victim / "precious")
    write_settings(tmp_path / "kernel_kbyk_dump.json", "{}\n")
    assert unharmed(victim)
    assert (tmp_path / "kernel_kbyk_dump.json").read_text() == "{}\n"


# -- what is read ------------------------------------------------------------------------------------------


def test_a_linked_tensor_is_exported_as_a_file(tmp_path: Path) -> None:
    """A link beside the dump would lead nowhere from the folder of the export."""
    folder = tmp_path / "in/rank_0/Net/0/0"
    tensor(tmp_path / "store", "a.npy", np.float32([1, 2]))
    folder.mkdir(parents=True)
    (folder / f"Op.Default_x_Op-op1.2.7.{TIME}.input.0.DefaultFormat.Float32.npy").symlink_to(
        "../../../../../store/a.npy"
    )
    assert cli.main(["export", str(tmp_path / "in"), "-o", str(tmp_path / "out")]) == 0
    (path,) = (tmp_path / f"out/step0/rank0/{TENSORS}").iterdir()
    assert not path.is_symlink()
    np.testing.assert_array_equal(np.load(path), [1, 2])


@pytest.mark.parametrize(
    "name", [f"Op.x.1.2.{TIME}", f"Op.x.1.2.{TIME}.input.0.ND.npy", "mapping.csv", "statistic.csv"]
)
def test_a_pipe_is_not_waited_for(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "rank_0/Net/0/0"
    conv(folder)
    os.mkfifo(folder / name)
    for beside in ("graphs/ms_output_trace_code_graph_0.ir", ".dump_metadata/config.json"):
        (tmp_path / "rank_0" / beside).parent.mkdir()
        os.mkfifo(tmp_path / "rank_0" / beside)
    assert cli.main(["check", str(tmp_path)]) in (0, 3)
    cli.main(["convert", str(folder), "-o", str(tmp_path / "out")])
    assert len(list(probe_kernel.open(tmp_path).iterations)) == 1
