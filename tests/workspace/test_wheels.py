"""A release rehearsed: every wheel and sdist is built and served by an index on this machine, each package is installed
alone by its name, as a user would in a fresh environment, and used once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from blocks import runnable
from members import MEMBERS, META, ROOT, toml
from packaging.requirements import Requirement
from test_versions import version

pytestmark = pytest.mark.slow

# Everything that `pip install PACKAGE` may bring, and nothing else: no framework, no test tool.
FORMAT = {"attrs", "numpy", "orjson", "probe-format"}
RUNTIME = FORMAT | {"probe-runtime", "pyyaml"}
CLOSURE = {
    "probe_format": FORMAT,
    "probe_runtime": RUNTIME,
    "probe_save": RUNTIME | {"probe-save"},
    "probe_kernel": RUNTIME | {"probe-kernel"},
    "probe_analysis": FORMAT | {"pyyaml", "probe-analysis"},
    "probe_torch": RUNTIME | {"probe-save", "probe-torch"},
    "probe_mindspore": RUNTIME | {"probe-save", "probe-mindspore"},
    "probe_all": FORMAT | {"pyyaml", "probe-analysis", "probe-all"},
}
#: The one that has no code.
ALL = "probe_all"

# Data that code or documentation looks for beside the modules.
SHIPPED = {
    "probe_format": ["py.typed", "spec/*.md", "schema/*.json"],
    "probe_runtime": ["py.typed", "spec/*.md"],
    "probe_torch": ["py.typed", "patching/apis.yaml", "docs/*.md"],
    "probe_save": ["py.typed"],
    "probe_kernel": ["py.typed", "spec/*.md"],
    "probe_analysis": [
        "py.typed",
        "spec/*.md",
        "docs/*.md",
        "report/assets/*.js",
        "report/assets/*.css",
        "report/assets/vendor/uPlot*",
    ],
    "probe_mindspore": ["py.typed", "docs/*.md"],
}

# What their import wants, and the extra that brings it.
NEEDS = {"probe_torch": "probe-torch[torch]", "probe_mindspore": "probe-mindspore[mindspore]"}

# Their examples save something.
WRITERS = {"probe_save"}

TENSOR = {
    "type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3],
    "Max": 1.5, "Min": " -inf", "Mean": " -inf", "Norm": "inf", "requires_grad": False,
}  # fmt: skip


def run(command: list[str | Path], cwd: Path) -> subprocess.CompletedProcess[str]:
    # Run by `hatch run test:...` we are inside an environment of hatch, which a member does not have.
    env = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith("HATCH_ENV") and k not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    return subprocess.run(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def ok(command: list[str | Path], cwd: Path) -> str:
    done = run(command, cwd)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `hatch build --all` makes: a wheel and an sdist of each package."""
    folder = tmp_path_factory.mktemp("dist")
    ok([sys.executable, "-m", "hatch", "build", "--all", folder], ROOT)
    return folder


@pytest.fixture(scope="session")
def wheels(dist: Path) -> dict[str, Path]:
    """Package -> wheel; the one that holds nothing is left out."""
    found = {path.name.partition("-")[0]: path for path in dist.glob("*.whl")}
    del found[ALL]
    return found


@pytest.fixture(scope="session")
def index(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """What makes pip take the packages from an index on this machine (PEP 503), and what they need from its own."""
    root = tmp_path_factory.mktemp("index")
    for path in dist.iterdir():
        place = root / "simple" / path.name.partition("-")[0].replace("_", "-") / path.name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.hardlink_to(path)
    handler = partial(Quiet, directory=str(root))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        python = Path(sys.executable)
        asked = run([python, "-m", "pip", "config", "get", "global.extra-index-url"], ROOT).stdout.split()
        ours = f"http://127.0.0.1:{server.server_address[1]}/simple"
        yield [option for url in [ours, *asked] for option in ("--extra-index-url", url)]
        server.shutdown()


class Quiet(SimpleHTTPRequestHandler):
    """Serves folders as lists of links, which is what an index is, and prints nothing."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="session")
def installed(index: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Package -> the bin folder of an environment that has only that package and what it depends on."""
    homes = {}
    for package in CLOSURE:
        home = tmp_path_factory.mktemp(package) / "venv"
        ok([sys.executable, "-m", "venv", home], ROOT)
        pip: list[str | Path] = [home / "bin" / "python", "-m", "pip", "install", "--quiet"]
        ok([*pip, *index, package.replace("_", "-")], home)
        homes[package] = home / "bin"
    return homes


def test_each_is_built_for_every_machine(dist: Path, wheels: dict[str, Path]) -> None:
    """Without a tag of a platform: what installs here installs on aarch64."""
    assert {*wheels, ALL} == {*MEMBERS, ALL} == set(CLOSURE)
    for package in wheels:
        assert wheels[package].name == f"{package}-{version(package)}-py3-none-any.whl"
        wheel = zipfile.ZipFile(wheels[package])
        (tags,) = (name for name in wheel.namelist() if name.endswith(".dist-info/WHEEL"))
        assert "Root-Is-Purelib: true" in wheel.read(tags).decode()
    assert [path.name for path in dist.glob(f"{ALL}-*.whl")] == [f"{ALL}-0.1.0-py3-none-any.whl"]


def test_a_sdist_holds_what_its_wheel_does(dist: Path, wheels: dict[str, Path]) -> None:
    for package, wheel in wheels.items():
        (path,) = dist.glob(f"{package}-*.tar.gz")
        with tarfile.open(path) as sdist:
            names = sdist.getnames()
        there = {name.partition("/src/")[2] for name in names}
        there |= {
            f"{package}/{name.partition('/')[2]}" for name in names
        }  # docs/ of the package goes into the wheel
        shipped = [n for n in zipfile.ZipFile(wheel).namelist() if n.startswith(f"{package}/")]
        assert shipped and set(shipped) <= there
    with tarfile.open(*dist.glob(f"{ALL}-*.tar.gz")) as sdist:
        assert any(name.endswith("/README.md") for name in sdist.getnames())


def test_the_meta_package_brings_each_by_its_extra(index: list[str], tmp_path: Path) -> None:
    """What pip would install: the frameworks themselves are several GB, and are told from the packages by a pin."""
    offered = toml(META / "pyproject.toml")["project"]["optional-dependencies"]
    wanted = {"torch": "probe-torch", "mindspore": "probe-mindspore", "kernel": "probe-kernel"}
    assert {extra: Requirement(line).name for extra, (line,) in offered.items()} == wanted
    assert {e for e in offered if Requirement(offered[e][0]).extras == {e}} == {"torch", "mindspore"}
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--dry-run",
        "--ignore-installed",
        "--quiet",
        "--report",
        "-",
    ]
    said = ok([*pip, *index, "probe-all[kernel]"], tmp_path)
    names = {found["metadata"]["name"].lower() for found in json.loads(said)["install"]}
    assert names == CLOSURE[ALL] | CLOSURE["probe_kernel"]


@pytest.mark.parametrize("package", sorted(SHIPPED))
def test_a_wheel_has_its_data_and_nothing_foreign(wheels: dict[str, Path], package: str) -> None:
    files = [Path(name) for name in zipfile.ZipFile(wheels[package]).namelist()]
    assert {f.parts[0] for f in files} == {package, f"{package}-{version(package)}.dist-info"}
    for pattern in SHIPPED[package]:
        assert [f for f in files if f.match(f"{package}/{pattern}")], (
            f"no {pattern} in {wheels[package].name}"
        )
    assert [f for f in files if f.name == "LICENSE"]


@pytest.mark.parametrize("package", sorted(CLOSURE))
def test_a_wheel_alone_brings_what_it_declares(installed: dict[str, Path], package: str) -> None:
    python = installed[package] / "python"
    listed = json.loads(ok([python, "-m", "pip", "list", "--format", "json"], python.parent))
    assert {d["name"].lower() for d in listed} - {"pip", "setuptools"} == CLOSURE[package]
    ok([python, "-m", "pip", "check"], python.parent)


@pytest.mark.parametrize("package", sorted(set(MEMBERS) - set(NEEDS)))
def test_a_wheel_alone_imports_and_runs_its_example(
    installed: dict[str, Path], package: str, tmp_path: Path
) -> None:
    python = installed[package] / "python"
    said = ok([python, "-I", "-c", f"import {package}; print({package}.__version__)"], tmp_path)
    assert said.strip() == version(package)
    # What writes a dump of its own begins in an empty folder; the others read the one that is here.
    folder = tmp_path / ("empty" if package in WRITERS else "full")
    folder.mkdir()
    rank = tmp_path / "full" / "dump" / "step0" / "rank"
    rank.mkdir(parents=True)
    data = {"Torch.log.0.forward": {"input_args": [TENSOR], "input_kwargs": {}, "output": [TENSOR]}}
    header = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    (rank / "dump.json").write_text(json.dumps({**header, "data": data}))
    examples = runnable(MEMBERS[package] / "README.md", "python")
    assert examples, "no example in the README"
    said = ""
    for number, code in enumerate(examples):
        example = folder / f"example{number}.py"
        example.write_text(code)
        said += ok([python, "-I", example, "dump"], folder).strip()
    assert said


def test_installing_by_name_from_the_folder_as_the_readme_says(dist: Path, tmp_path: Path) -> None:
    """The packages are on no index: each must be found in the folder, and nowhere else."""
    home = tmp_path / "venv"
    ok([sys.executable, "-m", "venv", home], tmp_path)
    pip: list[str | Path] = [home / "bin" / "python", "-m", "pip", "install", "--quiet", "--find-links"]
    names = [package.replace("_", "-") for package in sorted(MEMBERS)]
    ok([*pip, dist, *names, "probe-all"], tmp_path)
    listed = json.loads(ok([home / "bin" / "python", "-m", "pip", "list", "--format", "json"], tmp_path))
    found = {d["name"].lower(): d["version"] for d in listed}
    assert {name: found[name] for name in names} == {p.replace("_", "-"): version(p) for p in MEMBERS}


def test_the_probe_command_comes_with_probe_format(installed: dict[str, Path], tmp_path: Path) -> None:
    probe = installed["probe_format"] / "probe"
    assert version("probe_format") in ok([probe, "--version"], tmp_path)
    nothing = run([probe, "verify", tmp_path], tmp_path)
    assert nothing.returncode == 1
    assert str(tmp_path) in nothing.stderr
    assert "Traceback" not in nothing.stderr


@pytest.mark.parametrize("package", sorted(NEEDS))
def test_without_its_framework_a_package_says_what_to_install(
    installed: dict[str, Path], package: str, tmp_path: Path
) -> None:
    done = run([installed[package] / "python", "-I", "-c", f"import {package}"], tmp_path)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(("ImportError: ", "ModuleNotFoundError: ")), done.stderr
    assert "pip install" in last
    assert NEEDS[package] in last
