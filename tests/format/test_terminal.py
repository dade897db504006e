"""What is printed gives the terminal no orders; progress is one line on a terminal, and lines elsewhere."""

from __future__ import annotations

import io
import json
import sys

import pytest
from probe_format.errors import FormatError
from probe_format.terminal import ProgressLine, printable, say, tell


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_one_line_that_is_ended_once() -> None:
    stream = Terminal()
    line = ProgressLine(terminal=0, elsewhere=3600, stream=stream)
    line.show("1 of 2")
    line.show("2 of 2")
    line.end()
    line.end()
    assert stream.getvalue() == "\r1 of 2\r2 of 2\n"


def test_elsewhere_each_line_is_whole_and_recent_ones_are_left_out() -> None:
    stream = io.StringIO()
    line = ProgressLine(terminal=0, elsewhere=3600, stream=stream)
    line.show("1 of 2")
    line.show("2 of 2", now=True)
    line.end()
    assert stream.getvalue() == "2 of 2\n"


@pytest.mark.parametrize(
    "text", [*map(chr, range(32)), *map(chr, range(0x7F, 0xA0)), "\u202e", "\u2066", "\u2028", "\ud800"]
)
def test_what_gives_a_terminal_orders_is_escaped(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    say(f"a{text}b", "c")
    tell(f"a{text}b")
    shown = capsys.readouterr()
    escaped = "\\n" if text == "\n" else f"\\u{ord(text):04x}"
    assert shown.out == f"a{escaped}b\nc\n" and shown.err == f"a{escaped}b\n"
    stream = Terminal()
    ProgressLine(terminal=0, elsewhere=0, stream=stream).show(f"a{text}b", now=True)
    assert text == "\n" or stream.getvalue() == f"\ra{escaped}b"
    assert str(FormatError(f"a{text}b")) == (f"a{text}b" if text == "\n" else f"a{escaped}b")
    assert json.loads(printable(json.dumps({"a": text}, ensure_ascii=False))) == {"a": text}


def test_other_text_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    text = "layer.0 \\x1b é 层 \u3000 👩\u200d💻 ▁▂█"
    say(text)
    assert capsys.readouterr().out == f"{text}\n"


def test_a_process_that_began_without_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", out := io.StringIO())
    monkeypatch.setattr(sys, "stderr", None)
    tell("no part of the result")
    assert not out.getvalue()
