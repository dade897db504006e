"""The rounding, the denormals and the flags of a run are its own, before the library is loaded and ever after."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from native_library import SOURCE, build

# What a process has set, and what it does: one number of each.
STATE = """
#include <fenv.h>
#include <stdint.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
uint64_t word(void) { return _mm_getcsr(); }
void flush(void) { _mm_setcsr(_mm_getcsr() | 0x8040); }
#else
uint64_t word(void)
{
    uint64_t control, flags;
    __asm__ volatile("mrs %0, fpcr\\n\\tmrs %1, fpsr" : "=r"(control), "=r"(flags));
    return control << 32 | flags;
}
void flush(void) { __asm__ volatile("msr fpcr, %0" ::"r"((uint64_t)1 << 24)); }
#endif
void upward(void) { fesetround(FE_UPWARD); }
void divided(void) { feraiseexcept(FE_DIVBYZERO); }
int keeps_denormals(void) { volatile float x = 1e-39f; return x * 1.0f != 0; }
int rounds_up(void) { volatile float x = 1.0f; return x + 1e-30f != 1.0f; }
"""

CODE = """
import ctypes, sys
from array import array
tiny = array("f", [1e-45, 3e-45, -2e-42, 1.1]) # denormals, and a sum that another rounding would make another one
large = array("f", tiny * (1 << 18))
state, library, mode = ctypes.CDLL(sys.argv[1]), sys.argv[2], sys.argv[3]
state.word.restype = ctypes.c_uint64
if mode != "plain":
    getattr(state, mode)()
ctypes.CDLL(library)  # once before, so that only what the library does is seen between two looks
before = state.word()
ctypes.CDLL(sys.argv[4])
loaded = state.word()
import probe_fast
probe_fast.library.MANY = 1
asked = [(x.buffer_info()[0], len(x), "float32") for x in (tiny, large)]
ready = state.word()
found = probe_fast.four(*asked[0]), *(probe_fast.numbers(*a, threads=lambda: 3) for a in asked)
after = state.word()
keeps = state.keeps_denormals(), state.rounds_up()
assert keeps == (mode != "flush", mode == "upward")
assert before == loaded, f"loading made {before:x} {loaded:x}"
assert ready == after, f"computing made {ready:x} {after:x}"
print(*(x.hex() for numbers in found for x in numbers[:4]))
"""


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("state") / "state.so"
    place.with_suffix(".c").write_text(STATE)
    subprocess.run(["cc", "-shared", "-fPIC", place.with_suffix(".c"), "-o", place, "-lm"], check=True)
    return place


def numbers_in(state: Path, mode: str) -> str:
    another = state.with_name("copy.so")  # of the library: loaded for the first time in that process
    shutil.copy(SOURCE.with_suffix(".so"), another)
    command = [sys.executable, "-c", CODE, state, SOURCE.with_suffix(".so"), mode, another]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("mode", ["upward", "flush", "divided"])
def test_what_a_run_has_set_stays_and_changes_no_number(state: Path, mode: str) -> None:
    right = numbers_in(state, "plain")
    assert numbers_in(state, mode) == right
    top, bottom, *_ = map(float.fromhex, right.split())
    assert (round(top, 6), bottom) == (1.1, float.fromhex("-0x1.64c0000000000p-139"))


def test_it_is_never_built_with_fast_math() -> None:
    flags = " ".join([*build.FLAGS, *build.SHARED])
    assert not any(word in flags for word in ("fast-math", "Ofast", "unsafe", "associative", "reciprocal"))
    assert "-ffp-contract=off" in build.FLAGS  # or numbers would differ from processor to processor
