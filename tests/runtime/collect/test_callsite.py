"""The user's frames: which, in which words, and when two places are one."""

from __future__ import annotations

import functools
import gc
import inspect
import linecache
import os
import sys
import threading
import traceback
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from types import CodeType, FrameType, ModuleType
from typing import Any

import pytest
from probe_runtime.collect import callsite
from probe_runtime.collect.callsite import FrameTable


def module(tmp_path: Path, name: str, source: str) -> ModuleType:
    """A module as an import makes it, with a file of its own."""
    path = tmp_path / f"{name.replace('.', '_')}.py"
    path.write_text(source)
    made = ModuleType(name)
    made.__file__ = str(path)
    exec(compile(source, str(path), "exec"), made.__dict__)
    return made


def frames() -> tuple[str, ...]:
    here = inspect.currentframe()
    return callsite.frames(here and here.f_back)


USER = "def forward(self, call):\n    x = 1\n    return call()  # the call\n"


def test_frames_are_those_of_msprobe(tmp_path: Path) -> None:
    user = module(tmp_path, "user", USER)
    found = user.forward(None, frames)
    assert found[0] == f"File {tmp_path / 'user.py'}, line 3, in forward, \n return call()  # the call"
    assert found[1].startswith(f"File {__file__}, line ")
    assert found[1].endswith(", in test_frames_are_those_of_msprobe, \n found = user.forward(None, frames)")


def test_every_frame_is_there_but_our_own(tmp_path: Path) -> None:
    own = module(tmp_path, "probe_torch.collector", USER)
    torch_like = module(tmp_path, "torch.nn.modules.module", USER)
    demo = module(tmp_path, "probe_torch.demo.train", USER)
    expected = [f.name for f in traceback.extract_stack()][::-1]

    def call() -> Any:
        return torch_like.forward(None, lambda: own.forward(None, lambda: demo.forward(None, frames)))

    found = call()
    names = [f.split(", in ")[1].split(",")[0] for f in found]
    assert names[:5] == ["forward", "<lambda>", "<lambda>", "forward", "call"]
    assert names[5:] == expected
    assert [f.split(",")[0] for f in found[:4]] == [
        f"File {tmp_path}/probe_torch_demo_train.py",
        f"File {__file__}",
        f"File {__file__}",
        f"File {tmp_path}/torch_nn_modules_module.py",
    ]


def test_frames_without_source_are_kept() -> None:
    made: dict[str, Any] = {"frames": frames}
    exec("def f():\n    return frames()", made)
    found = made["f"]()
    assert found[0] == "File <string>, line 2, in f, \n "
    bare: dict[str, Any] = {"frames": frames, "__name__": None}
    exec("def f():\n    return frames()", bare)
    assert len(bare["f"]()) == len(found)


def test_a_relative_file_name_becomes_absolute(tmp_path: Path) -> None:
    made: dict[str, Any] = {"frames": frames}
    exec(compile("def f():\n    return frames()", "some/where.py", "exec"), made)
    assert made["f"]()[0].startswith(f"File {os.getcwd()}/some/where.py, line 2")


def test_a_broken_loader_costs_no_frame() -> None:
    class Loader:
        def get_source(self, name: str) -> str:
            raise RuntimeError("no source")

    made: dict[str, Any] = {"frames": frames, "__name__": "m", "__loader__": Loader()}
    exec(compile("def f():\n    return frames()", "m_without_file.py", "exec"), made)
    assert "in f, \n" in made["f"]()[0]


# ---------------- the table
def loop(table: FrameTable, times: int) -> list[tuple[int, bool]]:
    return [table.intern()[:2] for _ in range(times)]


def test_the_same_place_has_the_same_number() -> None:
    table = FrameTable()
    first, *others = loop(table, 4)
    assert first == (0, True)
    assert others == [(0, False)] * 3
    assert loop(table, 1) == [(1, True)], "called from another line"
    assert FrameTable().intern()[:2] == (0, True), "each step has a table of its own"


def test_two_calls_on_one_line_are_one_place() -> None:
    table = FrameTable()
    a, b = table.intern(), table.intern()
    assert (a[1], b[1]) == (True, False)
    assert (a[0], a[2]) == (b[0], b[2])


def test_the_table_says_what_frames_says() -> None:
    table = FrameTable()
    a, b = table.intern(), frames()
    assert a[2] == b


def test_probes_own_way_makes_no_difference(tmp_path: Path) -> None:
    """Two taps of Probe's between the user and the table: one place for the user."""
    taps = [module(tmp_path, f"probe_torch.tap{i}", USER) for i in range(2)]
    table = FrameTable()
    found = []
    for tap in taps:
        found.append(tap.forward(None, table.intern))
    assert [f[:2] for f in found] == [(0, True), (0, False)]
    assert found[0][2] == found[1][2]


def test_equal_code_in_two_files_is_two_places(tmp_path: Path) -> None:
    a, b = module(tmp_path, "a", USER), module(tmp_path, "b", USER)
    assert a.forward.__code__ == b.forward.__code__, "equal, though from two files"
    table = FrameTable()
    found = [m.forward(None, table.intern) for m in (a, b)]
    assert [f[0] for f in found] == [0, 1]
    assert [f[2][0].split(",")[0] for f in found] == [f"File {tmp_path}/a.py", f"File {tmp_path}/b.py"]


def test_depth_is_part_of_the_place() -> None:
    table = FrameTable()

    def deep(n: int) -> tuple[int, bool, tuple[str, ...]]:
        return deep(n - 1) if n else table.intern()

    found = [deep(n) for n in range(5) for _ in range(2)]
    assert [f[0] for f in found] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert [len(f[2]) - len(found[0][2]) for f in found[::2]] == [0, 1, 2, 3, 4]


def test_stacks_are_one_where_their_frames_are_one(tmp_path: Path) -> None:
    """Random chains of calls through equal code in two files, two calls on one line, and recursion."""
    source = "def go(to, *rest):\n    return to(*rest) if len(rest) % 2 else to(*rest)\n"
    source += "def way(to, *rest):\n    return to(*rest)\n"
    files = [module(tmp_path, name, source) for name in ("one", "two")]
    steps = [f for m in files for f in (m.go, m.way)]
    table, random = FrameTable(), Random(7)
    known: dict[tuple[str, ...], int] = {}
    for _ in range(2000):
        chain = random.choices(steps, k=random.randrange(7))
        for _ in range(2):  # the second time it is known
            first, *rest = [*chain, lambda: (table.intern(), frames())]
            (number, new, described, _), expected = first(*rest)
            assert described[1:] == expected[1:]  # all but the line here
            assert new == (described not in known)
            assert known.setdefault(described, number) == number
    assert sorted(known.values()) == list(range(len(known)))


def test_a_walk_ends_at_a_frame_whose_stack_is_known(tmp_path: Path) -> None:
    """Random chains within each other: what is outside of a frame of Probe's stays as it is while that runs."""
    user, random, table = module(tmp_path, "user", USER), Random(7), FrameTable()
    source = "import inspect\ndef tap(see, *given):\n    return see(inspect.currentframe(), *given)\n"
    own = module(tmp_path, "probe_torch.tap", source)

    def see(frame: FrameType, depth: int, anchor: Any) -> Any:
        found, expected = table.intern(0, anchor), frames()
        assert found[2][1:] == expected[1:]  # all but the line here
        for _ in range(random.randrange(4) if depth else 0):
            call = functools.partial(own.tap, see, depth - 1, (frame, found[3]))
            for _ in range(random.randrange(3)):
                call = functools.partial(user.forward, None, call)
            call()
        return frame, found[3]

    for _ in range(60):
        over = own.tap(see, 4, None)
    assert table.intern(0, over)[2][1:] == frames()[1:], "of a frame that runs no more"


def test_a_known_stack_costs_no_call_for_its_frames() -> None:
    table = FrameTable()

    def calls(depth: int) -> int:
        if depth:
            return calls(depth - 1)
        made: list[str] = []
        for _ in range(2):  # the second time it is known
            made.clear()
            gc.disable()  # a collection calls what others have registered for it
            sys.setprofile(lambda frame, event, what: made.append(event))
            table.intern()
            sys.setprofile(None)
            gc.enable()
        return sum("call" in event for event in made)

    assert calls(2) == calls(50) <= 4


def test_source_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    real = linecache.getline

    def getline(*arguments: Any) -> str:
        calls.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(linecache, "getline", getline)
    table = FrameTable()
    loop(table, 3)
    first = len(calls)
    assert first > 0
    loop(table, 3)  # one new line: this one
    assert len(calls) == first + 1
    loop(FrameTable(), 1)
    assert len(calls) == first + 2, "what is known outlives a step"


def test_the_source_of_a_module_that_was_changed_and_loaded_again_is_the_new_one(tmp_path: Path) -> None:
    sources = [f"def forward(call):\n    return call()  # {'again ' * n}\n" for n in range(3)]
    found = [module(tmp_path, "user", source).forward(frames)[0] for source in sources]
    assert [text.endswith(source[20:].strip()) for text, source in zip(found, sources, strict=True)] == [
        True
    ] * 3


def test_no_frame_and_no_local_is_kept_alive() -> None:
    class Thing:
        pass

    table = FrameTable()

    def user() -> weakref.ref[Thing]:
        thing = Thing()
        table.intern()
        return weakref.ref(thing)

    ref = user()
    gc.collect()
    assert ref() is None


def test_made_code_does_not_mix_up_places() -> None:
    """A code object that is gone must not lend its id, and so its text, to another."""
    table = FrameTable()
    seen = set()
    for i in range(50):
        made: dict[str, Any] = {"t": table}
        exec(compile(f"def f{i}():\n    return t.intern()", f"<made {i}>", "exec"), made)
        number, new, found, _ = made[f"f{i}"]()
        assert new
        assert found[0] == f"File <made {i}>, line 2, in f{i}, \n "
        seen.add(number)
        del made
    assert len(seen) == 50


def test_endless_new_code_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callsite, "MOST_STACKS", 10)
    monkeypatch.setattr(callsite, "MOST_TEXTS", 10)
    table = FrameTable()
    refs: list[weakref.ref[CodeType]] = []
    for i in range(200):
        made: dict[str, Any] = {"t": table}
        exec(compile(f"def f{i}():\n    return t.intern()", f"<made {i}>", "exec"), made)
        refs.append(weakref.ref(made[f"f{i}"].__code__))
        assert made[f"f{i}"]()[2][0].startswith(f"File <made {i}>")
    del made
    gc.collect()
    assert sum(r() is not None for r in refs) < 100


def test_threads() -> None:
    table = FrameTable()
    start = threading.Barrier(8)
    got: list[tuple[int, bool]] = []

    def here(_: int) -> None:
        start.wait()
        for _ in range(100):
            got.append(table.intern()[:2])

    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(here, range(8)))
    finally:
        sys.setswitchinterval(switch)
    assert {n for n, _ in got} == {0}
    assert sum(new for _, new in got) == 1
