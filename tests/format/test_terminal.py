"""The progress of a long command: one line on a terminal, lines elsewhere."""

from __future__ import annotations

import io

from probe_format.terminal import ProgressLine


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
