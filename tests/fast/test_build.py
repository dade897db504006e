"""The wheel: with the library where there is a compiler, without it, and usable all the same, where there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import textwrap
import zipfile
from pathlib import Path

import pytest
from native_library import SOURCE

pytest.importorskip("hatchling")


def built(folder: Path, compiler: str) -> tuple[Path, str]:
    """The wheel that a copy of the package gives, and what was said."""
    copy = shutil.copytree(
        SOURCE.parents[2], folder / "probe-fast", ignore=shutil.ignore_patterns("*.so", "dist")
    )
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder / "dist"]
    run = subprocess.run(
        [str(word) for word in command],
        cwd=copy,
        env={**os.environ, "CC": compiler},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel, run.stdout


@pytest.mark.parametrize("compiler", ["cc", "no-such-compiler", "false"])
def test_the_wheel_has_the_library_or_says_that_it_has_none(tmp_path: Path, compiler: str) -> None:
    wheel, said = built(tmp_path, compiler)
    platform = sysconfig.get_platform().replace("-", "_") if compiler == "cc" else "any"
    assert wheel.name.endswith(f"-py3-none-{platform}.whl")
    assert ("installed without its library" in said) == (compiler != "cc")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "there")
    code = """
        import probe_fast
        print(probe_fast.__file__, bool(probe_fast.WAY), probe_fast.take_floats(b"", [b"ab"]) is not None)
    """
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "there")}
    place, *has = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=env, capture_output=True, text=True, check=True
    ).stdout.split()
    assert Path(place).is_relative_to(tmp_path) and has == [str(compiler == "cc")] * 2
