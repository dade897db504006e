"""README.zh-CN.md says what README.md says: the same sections, commands, code, links and numbers."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from members import ROOT

ENGLISH = (ROOT / "README.md").read_text(encoding="utf-8")
CHINESE = (ROOT / "README.zh-CN.md").read_text(encoding="utf-8")
FENCE = r"^```.*?^```$"


def sections(text: str) -> list[str]:
    return re.split(r"^## ", re.sub(r"^(English \||\[English\]).*$", "", text, flags=re.M), flags=re.M)


def fences(text: str) -> list[str]:
    return re.findall(FENCE, text, re.M | re.S)


def links(text: str) -> Counter[str]:
    return Counter(re.findall(r"\]\(([^)\s]+)\)", text))


def code(text: str) -> set[str]:
    return set(re.findall(r"`([^`\n]+)`", re.sub(FENCE, "", text, flags=re.M | re.S)))


def numbers(text: str) -> Counter[str]:
    prose = re.sub(r"`[^`\n]+`|\]\([^)]*\)", "", re.sub(FENCE, "", text, flags=re.M | re.S))
    return Counter(re.findall(r"\d+(?:\.\d+)*", prose))


def rows(text: str) -> int:
    return sum(line.startswith("|") for line in text.splitlines())


PAIRS = list(zip(sections(ENGLISH), sections(CHINESE), strict=False))
EACH = pytest.mark.parametrize(
    ("english", "chinese"), PAIRS, ids=[english.partition("\n")[0] for english, _ in PAIRS]
)


def test_each_leads_to_the_other() -> None:
    assert "[简体中文](README.zh-CN.md)" in ENGLISH.splitlines()[2]
    assert "[English](README.md)" in CHINESE.splitlines()[2]


def test_they_have_the_same_sections() -> None:
    assert len(sections(ENGLISH)) == len(sections(CHINESE)) > 8


@EACH
def test_a_section_has_the_same_blocks(english: str, chinese: str) -> None:
    assert fences(chinese) == fences(english)


@EACH
def test_a_section_has_the_same_links(english: str, chinese: str) -> None:
    assert links(chinese) == links(english)


@EACH
def test_a_section_names_the_same_things(english: str, chinese: str) -> None:
    assert not code(english) - code(chinese)


@EACH
def test_a_section_has_the_same_numbers(english: str, chinese: str) -> None:
    assert numbers(chinese) == numbers(english)


@EACH
def test_its_tables_have_as_many_rows(english: str, chinese: str) -> None:
    assert rows(chinese) == rows(english)


def test_it_is_chinese() -> None:
    for section in sections(CHINESE):
        assert re.search(r"[\u4e00-\u9fff]{4}", section)
