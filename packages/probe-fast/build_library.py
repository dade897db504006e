"""Compile the libraries where there is a compiler; without one the package is installed all the same, and says so.

hatch runs this before it builds a wheel and before it installs the package editable. By hand: python build_library.py.
"""

import os
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # by hand
    BuildHookInterface = object

SOURCES = [Path(__file__).parent / "src" / "probe_fast" / name for name in ("numbers.c", "floats.c")]
#: Never -ffast-math, nor what it stands for: linked with it, a library turns denormals off as it is loaded.
FLAGS = ["-std=gnu11", "-O3", "-ffp-contract=off", "-fno-math-errno", "-pthread"]
SHARED = ["-fPIC", "-shared", "-Wl,--build-id=none"]


def compiled(source: Path, target: Path) -> str:
    """Compile a library; return "" or, where that could not be done, why."""
    compiler = shlex.split(os.environ.get("CC", "cc"))
    if shutil.which(compiler[0]) is None:
        return f"there is no compiler ({compiler[0]})"
    made = target.with_name(f"{target.name}.{os.getpid()}")  # a process may have the old one open
    done = subprocess.run(
        [*compiler, *FLAGS, *SHARED, source, "-o", made], capture_output=True, text=True, check=False
    )
    if done.returncode:
        made.unlink(missing_ok=True)
        return f"{shlex.join(compiler)} failed: {done.stderr.strip()[-500:]}"
    made.replace(target)
    return ""


class LibraryHook(BuildHookInterface):  # type: ignore[type-arg,unused-ignore]
    """Put the libraries into the wheel, which is then one for this platform and every Python 3."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile them beside their sources. version: ``standard`` or ``editable``."""
        targets = [source.with_suffix(".so") for source in SOURCES]
        why = next(filter(None, map(compiled, SOURCES, targets)), "")
        if why:
            for target in targets:
                target.unlink(missing_ok=True)  # of an older source
            self.app.display_warning(f"probe-fast is installed without its library: {why}")
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data |= {"pure_python": False, "tag": f"py3-none-{platform}"}
        build_data["artifacts"] += [f"/src/probe_fast/{target.name}" for target in targets]


if __name__ == "__main__":
    every = [compiled(source, source.with_suffix(".so")) for source in SOURCES]
    raise SystemExit("; ".join(filter(None, every)) or 0)
