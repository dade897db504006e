"""Compile the library where there is a compiler; without one the package is installed all the same, and says so.

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

SOURCE = Path(__file__).parent / "src" / "probe_fast" / "numbers.c"
#: Never -ffast-math, nor what it stands for: linked with it, a library turns denormals off as it is loaded.
FLAGS = ["-std=gnu11", "-O3", "-ffp-contract=off", "-fno-math-errno", "-pthread"]
SHARED = ["-fPIC", "-shared", "-Wl,--build-id=none"]


def compiled(source: Path, target: Path) -> str:
    """Compile the library; return "" or, where that could not be done, why."""
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
    """Put the library into the wheel, which is then one for this platform and every Python 3."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile it beside its source. version: ``standard`` or ``editable``."""
        target = SOURCE.with_suffix(".so")
        why = compiled(SOURCE, target)
        if why:
            target.unlink(missing_ok=True)  # of an older source
            self.app.display_warning(f"probe-fast is installed without its library: {why}")
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data |= {"pure_python": False, "tag": f"py3-none-{platform}"}
        build_data["artifacts"].append("/src/probe_fast/numbers.so")


if __name__ == "__main__":
    raise SystemExit(compiled(SOURCE, SOURCE.with_suffix(".so")) or 0)
