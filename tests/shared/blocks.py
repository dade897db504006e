"""Read the fenced blocks of the workspace's Markdown pages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

__all__ = ["Block", "blocks_of", "runnable", "texts_of"]

# An indented block does not count.
_FENCE = re.compile(r"(?:^<!-- ([^\n]*) -->\n+)?^```([\w-]*) *([^\n]*)\n(.*?)^```$", re.M | re.S)
_NAMED = re.compile(r"# ([\w./-]+\.(?:py|yaml))\n")


@attrs.frozen
class Block:
    """A fenced block of a page.

    language, mark: the words after the fence: ``sql`` and ``setup``.
    comment: what the comment before it says, by key: ``<!-- exit: 1, in: msprobe -->``.
    """

    language: str
    mark: str
    text: str
    comment: Mapping[str, str]

    @property
    def file(self) -> str | None:
        """The file that a reader makes of it."""
        named = _NAMED.match(self.text)
        return self.comment.get("file") or (named[1] if named else None)

    @property
    def commands(self) -> Iterator[tuple[str, str]]:
        """Each command of a console block with what it prints."""
        for part in re.split(r"^\$ ", self.text, flags=re.M)[1:]:
            command, _, shown = part.partition("\n")
            yield command, shown


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page, in order."""
    return [
        Block(language, mark.strip(), text, _pairs(comment))
        for comment, language, mark, text in _FENCE.findall(page.read_text(encoding="utf-8"))
    ]


def texts_of(page: Path, language: str) -> list[str]:
    """Return the text of each block in a language."""
    return [block.text for block in blocks_of(page) if block.language == language]


def runnable(page: Path, language: str) -> list[str]:
    """Return those of `texts_of` that are not marked ``no-run``: these need something that is not everywhere."""
    return [block.text for block in blocks_of(page) if block.language == language and block.mark != "no-run"]


def _pairs(comment: str) -> dict[str, str]:
    pairs = (part.partition(":") for part in comment.split(",") if ":" in part)
    return {key.strip(): value.strip() for key, _, value in pairs}
