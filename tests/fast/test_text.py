"""Floats taken out of a text in C: the same, byte by byte, as by the pattern that does it where there is no library."""

from __future__ import annotations

import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from native_library import SOURCE, build
from probe_fast import take_floats
from probe_format.json_floats import by_pattern

KEYS = [b'"Max":', b',"Min":', b',"Mean":', b',"Norm":']
#: What floats and their neighbours are made of, each whole and in pieces.
WORDS = (
    *KEYS, b"1.5", b"-2e-7", b"0.", b"1E+5", b"-", b"7", b".", b"e", b"+", b"1.2.3", b"null", b'"NaN"', b",", b"}",
    b'"M', b'"Max"', b"ax", b":", b"\0", b"\n", b"M", b"\xff",
)  # fmt: skip
RUN = b'"Max":1.5,"Min":-0.25,"Mean":1e-3,"Norm":2.E5'
TEXTS = st.lists(st.one_of(st.sampled_from(WORDS), st.just(RUN), st.binary(max_size=3))).map(b"".join)


@given(TEXTS)
def test_the_library_takes_what_the_pattern_takes(text: bytes) -> None:
    assert take_floats(text, KEYS) == by_pattern(text, KEYS)


@pytest.mark.parametrize("keys", [[b'"x":'], [b"ab", b"cd"], KEYS])
def test_every_piece_of_a_text(keys: list[bytes]) -> None:
    """No byte behind the end is read: what would make a longer float, or a further key, stands there."""
    text = (RUN + b'{"x":-1.5e3}ab1.5cd-2.0' + RUN) * 2
    for begin in range(len(text)):
        for end in range(begin, len(text)):
            assert take_floats(text[begin:end], keys) == by_pattern(text[begin:end], keys)


def test_threads_do_not_write_into_one_another() -> None:
    texts = [b"%d" % n * n + RUN * n for n in range(1, 60)]
    wrong: list[bytes] = []

    def work() -> None:
        for text in texts * 20:
            if take_floats(text, KEYS) != by_pattern(text, KEYS):
                wrong.append(text)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


ON_ARM = """
#include "floats.c"
#include <stdio.h>
int main(void)
{
    static char text[1 << 16], rest[1 << 16], floats[1 << 16];
    size_t size = fread(text, 1, sizeof text, stdin), lengths[2];
    probe_fast_take_floats(text, size, KEYS, 4, rest, floats, lengths);
    fwrite(rest, 1, lengths[0], stdout);
    putchar(1);
    return fwrite(floats, 1, lengths[1], stdout) != lengths[1];
}
"""
COMPILER = shutil.which("aarch64-linux-gnu-gcc")
EMULATOR = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")


@pytest.mark.skipif(
    not (COMPILER and EMULATOR), reason="needs gcc-aarch64-linux-gnu, libc6-dev-arm64-cross, qemu-user-static"
)
def test_aarch64_takes_the_same(tmp_path: Path) -> None:
    keys = "".join(f'"{key.decode()}\\0"'.replace('"', '\\"')[2:-2] for key in KEYS)
    (tmp_path / "main.c").write_text(f'#define KEYS "{keys}"\n{ON_ARM}')
    flags = [*build.FLAGS, "-static", "-I", str(SOURCE.parent)]
    subprocess.run([str(COMPILER), *flags, tmp_path / "main.c", "-o", tmp_path / "main"], check=True)
    text = b"\n".join([RUN * 3, b'{"Max":3,"Min":1.5}', b"M" * 9, RUN[:-3], RUN])
    said = subprocess.run(
        [str(EMULATOR), tmp_path / "main"], input=text, capture_output=True, check=True
    ).stdout
    rest, floats = by_pattern(text, KEYS)
    assert said == rest + b"\1" + floats + b","
