"""A release rehearsed: every wheel and sdist is built and served by an index on this machine, each package is installed
alone by its name, as a user would in a fresh environment, and used once.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distributions
from pathlib import Path

import pytest
from blocks import runnable
from members import MEMBERS, META, ROOT, toml
from packaging.requirements import Requirement
from test_versions import version

pytestmark = pytest.mark.slow

# Everything that `pip install PACKAGE` may bring, and nothing else: no framework, no test tool.
FORMAT = {"attrs", "numpy", "orjson", "probe-format"}
RUNTIME = FORMAT | {"probe-runtime", "pyyaml", "xxhash"}
CLOSURE = {
    "probe_fast": {"probe-fast"},
    "probe_format": FORMAT,
    "probe_runtime": RUNTIME,
    "probe_save": RUNTIME | {"probe-save"},
    "probe_kernel": RUNTIME | {"probe-kernel"},
    "probe_analysis": FORMAT | {"pyyaml", "probe-analysis"},
    "probe_torch": RUNTIME | {"probe-save", "probe-torch"},
    "probe_mindspore": RUNTIME | {"probe-save", "probe-mindspore"},
    "probe_all": FORMAT | {"pyyaml", "probe-analysis", "probe-all"},
}
#: The one that has no code, and the one that has code of a machine.
ALL = "probe_all"
NATIVE = "probe_fast"

# Data that code or documentation looks for beside the modules.
SHIPPED = {
    "probe_fast": ["py.typed", "floats.c", "numbers.c"],
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

# Frameworks of several GB are not installed again: they are borrowed of environments that have them.
LENDERS = {
    "probe_torch": Path(sys.executable),
    "probe_mindspore": Path(os.environ.get("PROBE_MINDSPORE_PYTHON", ROOT / ".venv-mindspore/bin/python")),
}

# Their examples save something.
WRITERS = {"probe_save", *NEEDS}

#: The machines that what has no code of a machine must install on, as pip names them.
LINUX = ("manylinux2014", "manylinux_2_17", "manylinux_2_28")

TENSOR = {
    "type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3],
    "Max": 1.5, "Min": " -inf", "Mean": " -inf", "Norm": "inf", "requires_grad": False,
}  # fmt: skip


#: Says which package it is, and runs scripts, each by itself: what they import is imported once.
EXAMPLES = """
import importlib, runpy, sys
package = importlib.import_module(sys.argv[1])
print(package.__version__, package.__file__, flush=True)
for path in sys.argv[2:]:
    sys.argv = [path, "dump"]
    runpy.run_path(path, run_name="__main__")
"""


def run(command: list[str | Path], cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    # Run by `hatch run test:...` we are inside an environment of hatch, which a member does not have.
    env = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith("HATCH_ENV") and k not in ("PYTHONPATH", "VIRTUAL_ENV")
    } | more
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


def ok(command: list[str | Path], cwd: Path, **more: str) -> str:
    done = run(command, cwd, **more)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def pip_of(home: Path, python: str | Path = sys.executable) -> list[str | Path]:
    """Make an empty environment; return the pip that installs into it, from outside: half the time of one inside."""
    ok([python, "-m", "venv", "--without-pip", home], ROOT)
    return [sys.executable, "-m", "pip", "--python", home]


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
    homes = {package: tmp_path_factory.mktemp(package) / "venv" for package in CLOSURE}

    def install(package: str) -> None:
        pip = pip_of(homes[package], LENDERS.get(package, sys.executable))
        ok([*pip, "install", "--quiet", "--no-compile", *index, package.replace("_", "-")], homes[package])

    with ThreadPoolExecutor(4) as pool:  # each waits for answers from outside most of the time
        list(pool.map(install, CLOSURE))
    return {package: home / "bin" for package, home in homes.items()}


def versions(home: Path) -> dict[str, str]:
    """Name -> version of all that is installed in an environment."""
    (folder,) = home.glob("lib/python3*/site-packages")
    return {d.name.lower(): d.version for d in distributions(path=[str(folder)])}


def test_each_is_built_for_every_machine(dist: Path, wheels: dict[str, Path]) -> None:
    """Without a tag of a platform, what installs here installs on aarch64: all but the library."""
    assert {*wheels, ALL} == {*MEMBERS, ALL} == set(CLOSURE)
    for package in wheels:
        native = package == NATIVE and shutil.which("cc") is not None
        platform = sysconfig.get_platform().replace("-", "_") if native else "any"
        assert wheels[package].name == f"{package}-{version(package)}-py3-none-{platform}.whl"
        wheel = zipfile.ZipFile(wheels[package])
        (tags,) = (name for name in wheel.namelist() if name.endswith(".dist-info/WHEEL"))
        assert f"Root-Is-Purelib: {str(not native).lower()}" in wheel.read(tags).decode()
        assert native == any(name.endswith(".so") for name in wheel.namelist())
    assert [path.name for path in dist.glob(f"{ALL}-*.whl")] == [f"{ALL}-0.1.0-py3-none-any.whl"]


def test_a_sdist_builds_the_wheel_that_is_beside_it(dist: Path, tmp_path: Path) -> None:
    pip: list[str | Path] = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    ok([*pip, "--no-build-isolation", "--wheel-dir", tmp_path, *dist.glob("*.tar.gz")], tmp_path)
    built = sorted(tmp_path.glob("*.whl"))
    assert [path.name for path in built] == sorted(path.name for path in dist.glob("*.whl"))
    for path in built:
        here, there = (
            {file.filename: file.CRC for file in zipfile.ZipFile(wheel).infolist()}
            for wheel in (path, dist / path.name)
        )
        assert here == there, path.name


def test_the_extras_of_the_meta_package_bring_each_its_package_and_framework() -> None:
    offered = toml(META / "pyproject.toml")["project"]["optional-dependencies"]
    wanted = {"torch": "probe-torch", "mindspore": "probe-mindspore", "kernel": "probe-kernel"}
    assert {extra: Requirement(line).name for extra, (line,) in offered.items()} == wanted
    assert {e for e in offered if Requirement(offered[e][0]).extras == {e}} == {"torch", "mindspore"}


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_all_but_the_frameworks_install_on_each_machine(
    index: list[str], tmp_path: Path, machine: str
) -> None:
    """What pip would install there: wheels alone, ours and those that they need."""
    pip: list[str | Path] = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--report", "-"]
    pip += ["--target", tmp_path, "--only-binary", ":all:", *(f"--platform={p}_{machine}" for p in LINUX)]
    said = ok([*pip, *index, "probe-all[kernel]", "probe-save"], tmp_path)
    names = {found["metadata"]["name"].lower() for found in json.loads(said)["install"]}
    assert names == CLOSURE[ALL] | CLOSURE["probe_kernel"] | CLOSURE["probe_save"]


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
    home = installed[package].parent
    assert versions(home).keys() == CLOSURE[package]
    ok([sys.executable, "-m", "pip", "--python", home, "check"], home)


@pytest.mark.parametrize("package", sorted(MEMBERS))
def test_a_wheel_alone_imports_and_runs_its_examples(
    installed: dict[str, Path], package: str, tmp_path: Path
) -> None:
    python = installed[package] / "python"
    path = ""
    if lender := LENDERS.get(
        package
    ):  # what is installed editable there, as our packages are, is not in the folder
        ask = "import sysconfig; print(sysconfig.get_path('platlib'))"
        path = ok([lender, "-c", ask], tmp_path).strip()
    # What writes a dump of its own begins in an empty folder; the others read the one that is here.
    folder = tmp_path / ("empty" if package in WRITERS else "full")
    folder.mkdir()
    rank = tmp_path / "full" / "dump" / "step0" / "rank"
    rank.mkdir(parents=True)
    data = {"Torch.log.0.forward": {"input_args": [TENSOR], "input_kwargs": {}, "output": [TENSOR]}}
    header = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    (rank / "dump.json").write_text(json.dumps({**header, "data": data}))
    examples = []
    for code in runnable(MEMBERS[package] / "README.md", "python"):
        examples.append(folder / f"example{len(examples)}.py")
        examples[-1].write_text(code)
    assert examples, "no example in the README"
    said = ok([python, "-c", EXAMPLES, package, *examples], folder, PYTHONPATH=path)
    number, place, more = said.split(maxsplit=2)
    assert number == version(package) and Path(place).is_relative_to(python.parents[1])
    assert more.strip()


@pytest.mark.parametrize("package", sorted(CLOSURE.keys() - {NATIVE}))
def test_each_command_that_a_package_brings_answers(
    installed: dict[str, Path], package: str, tmp_path: Path
) -> None:
    """Those that it and its siblings add to `probe`, and no other."""
    probe = installed[package] / "probe"
    brings = {home.name for home in MEMBERS.values()} & CLOSURE[package]
    listed = ok([probe, "--help"], tmp_path)
    for name, home in ((home.name, home) for home in MEMBERS.values()):
        project = toml(home / "pyproject.toml")["project"]
        for command in project.get("entry-points", {}).get("probe.commands", {}):
            there = bool(re.search(rf"^ +{command}\b", listed, re.M))
            assert there == (name in brings), command
            if name == package:  # what its siblings bring answers where they are alone
                assert f"probe {command}" in ok([probe, command, "--help"], tmp_path)


def test_installing_by_name_from_the_folder_as_the_readme_says(dist: Path, tmp_path: Path) -> None:
    """The packages are on no index: each must be found in the folder, and nowhere else."""
    pip = pip_of(tmp_path / "venv")
    names = [package.replace("_", "-") for package in sorted(MEMBERS)]
    ok([*pip, "install", "--quiet", "--no-compile", "--find-links", dist, *names, "probe-all"], tmp_path)
    found = versions(tmp_path / "venv")
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
