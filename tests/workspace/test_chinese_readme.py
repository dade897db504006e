"""A page in Chinese says what the English one says: the same sections, commands, code, links and numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

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
@pytest.mark.parametrize("of", [fences, links, numbers, rows])
def test_a_section_has_the_same(of: Callable[[str], object], english: str, chinese: str) -> None:
    assert of(chinese) == of(english)


@EACH
def test_a_section_names_the_same_things(english: str, chinese: str) -> None:
    assert not code(english) - code(chinese)


def test_it_is_chinese() -> None:
    for section in sections(CHINESE):
        assert re.search(r"[\u4e00-\u9fff]{4}", section)


PAGES = sorted((ROOT / "docs").glob("*.zh-CN.md"))


@pytest.mark.parametrize("chinese", PAGES, ids=lambda page: page.name)
def test_a_page_of_the_docs_is_the_english_one(chinese: Path) -> None:
    english = chinese.with_name(chinese.name.replace(".zh-CN", ""))
    one, other = (page.read_text(encoding="utf-8") for page in (english, chinese))
    assert f"[简体中文]({chinese.name})" in one and f"[English]({english.name})" in other
    assert fences(other) == fences(one) and len(fences(one)) > 5
    assert code(other) == code(re.sub(r"(?<=\S)\n  (?=\w)", " ", one))
    assert [line[: line.index(" ")] for line in other.splitlines() if line.startswith("#")] == [
        line[: line.index(" ")] for line in one.splitlines() if line.startswith("#")
    ]
    kept = {link.replace(".zh-CN", "").partition("#")[0] for link in links(other)}
    assert kept == {link.replace(".zh-CN", "").partition("#")[0] for link in links(one)} | {english.name}


def test_the_pages_for_the_first_hour_are_there() -> None:
    names = [page.name.removesuffix(".zh-CN.md") for page in PAGES]
    assert names == ["loss-is-nan", "quick-start-mindspore", "quick-start-torch"]
