"""The same source on aarch64, the hosts of Ascend: a static program under qemu's emulation gives the same bits."""

from __future__ import annotations

import shutil
import struct
import subprocess
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from native_library import SOURCE, build
from probe_fast import KINDS, numbers
from probe_fast.library import ROW
from vectors_of_kinds import TABLE, drawn

COMPILER = shutil.which("aarch64-linux-gnu-gcc")
EMULATOR = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
HEAD = struct.Struct("5q")
#: How the program answers: the status, and the row.
ANSWER = struct.Struct(f"q{ROW.format}")
LENGTHS = (1, 5, 16, 33, 1024, 1041)


@pytest.mark.skipif(
    not (COMPILER and EMULATOR), reason="needs gcc-aarch64-linux-gnu, libc6-dev-arm64-cross, qemu-user-static"
)
def test_aarch64_gives_the_same_bits(tmp_path: Path) -> None:
    cases = [
        (a, kind, threads)
        for kind in KINDS
        for length in (*LENGTHS, 70_000)
        for threads in (1, 3)
        for a in islice(drawn(kind, length, 5), 4 if length > 2000 else 20)
    ]
    with open(tmp_path / "vectors", "wb") as file:
        file.write(TABLE.tobytes())
        for a, kind, threads in cases:
            file.write(HEAD.pack(KINDS[kind], 3, threads, a.size, a.nbytes) + a.tobytes())
    program = tmp_path / "program"
    source = Path(__file__).with_name("vectors_on_arm.c")
    compile_it = [COMPILER, *build.FLAGS, "-static", "-I", SOURCE.parent, source, "-o", program]
    subprocess.run([str(word) for word in compile_it], check=True)
    done = subprocess.run([str(EMULATOR), program, tmp_path / "vectors"], check=True, capture_output=True)
    size = 8 + ROW.size
    assert len(done.stdout) == size * len(cases)
    for i, (a, kind, _) in enumerate(cases):
        status, *values = ANSWER.unpack_from(done.stdout, i * size)
        table = TABLE.ctypes.data if kind == "codes" else None
        here = numbers(a.ctypes.data, a.size, kind, table=table, zero_count=True, sketch=True)
        if here is None:
            assert status == 2, (kind, a)
        else:
            assert status == here.broken, (kind, a)
            np.testing.assert_array_equal(np.array([*here[:10], *here.sketch]), np.array(values), kind)
