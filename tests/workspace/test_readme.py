"""What the pages tell people to do is what the machine does."""

from __future__ import annotations

import ast
import itertools
import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest
import yaml
from blocks import texts_of
from forks import Forks
from members import MEMBERS, META, ROOT, toml, tree
from pages import PAGES
from walkthroughs import run_command

README = ROOT / "README.md"
HATCH = toml(ROOT / "hatch.toml")


def commands() -> list[str]:
    """The set-up commands: the lines of the README's one ``bash`` block."""
    (block,) = texts_of(README, "bash")
    return [line for line in block.splitlines() if line and not line.startswith("#")]


def scripts(environment: str) -> dict[str, object]:
    """The scripts of an environment, and of the template that it is made from."""
    settings = HATCH["envs"][environment]
    inherited = scripts(settings["template"]) if "template" in settings else {}
    return {**inherited, **settings.get("scripts", {})}


def test_there_are_exactly_two_commands() -> None:
    assert [re.search(r"hatch run (\S+)$", c)[1] for c in commands()] == ["demo:run", "test:all"]  # type: ignore[index]


def test_the_commands_install_what_they_run() -> None:
    """Each is whole in itself: it installs the hatch that the test environment has too, and starts it."""
    (pinned,) = (d for d in HATCH["envs"]["test"]["extra-dependencies"] if d.startswith("hatch=="))
    for command in commands():
        install, _, start = command.partition(" && ")
        assert shlex.split(install) == ["python3", "-m", "pip", "install", pinned]
        assert start.startswith("python3 -m hatch run ")


def test_the_scripts_are_in_hatch_toml() -> None:
    for page in PAGES:
        for environment, script in re.findall(r"hatch run (\w[\w.-]*):([\w-]+)", page.read_text()):
            assert script in scripts(environment) or script == "python", (
                f"{page.name}: {environment}:{script}"
            )


def test_ci_runs_the_test_command_of_the_readme() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert script.startswith("#!/usr/bin/env bash\nset -euo pipefail\n")
    lines = [x for x in script.splitlines() if x and not x.startswith("#")]
    assert lines[-1] == commands()[1]
    assert subprocess.run(["bash", "-n", ROOT / ".ci" / "run"], check=False).returncode == 0


def test_the_test_command_runs_every_part() -> None:
    """Lint, types, the site and all tests; pytest last, so that its summary stands at the end of the output."""
    program, *parts = str(scripts("test")["all"]).removeprefix("python ").split()
    assert (ROOT / program).is_file()
    assert parts == [
        "lint:all",
        "docs:build",
        "py313:unit",
        "mindspore:unit+bench-mindspore",
        "mindspore27:unit",
        "test:unit+interop+mindspore",
    ]
    assert "pytest" in str(scripts("test")["unit"])
    assert "mkdocs build --strict" in str(scripts("docs")["build"])
    assert "-q" not in str(scripts("docs")["build"]), (
        "it hides the warnings from --strict: broken links would pass"
    )
    assert scripts("lint")["all"] == ["style", "types"]
    for package in MEMBERS.values():
        assert f"packages/{package.name}/src" in str(scripts("lint")["types"])


def test_every_environment_is_installed_by_pip() -> None:
    """uv doesn't look where a local CPU build of torch is, and takes the CUDA build."""
    for name, environment in HATCH["envs"].items():
        inherits = not environment.get("detached") and name != "hatch-build"
        assert environment.get("installer", "pip" if inherits else "") == "pip", name
    assert HATCH["envs"]["default"]["installer"] == "pip"


def test_torch_is_pinned_wherever_it_is_named() -> None:
    text = (ROOT / "hatch.toml").read_text()
    pins = {"torch==2.13.0", "torch==2.6.0", "torch==2.15.0"}
    assert set(re.findall(r'"(torch(?:[=<>][^"]*)?)"', text)) == {*pins, "torch"}  # "torch": our extra


def test_members_are_those_of_the_environments() -> None:
    members = HATCH["envs"]["default"]["workspace"]["members"]
    paths = [m if isinstance(m, str) else m["path"] for m in members]
    assert sorted(paths) == sorted(str(p.relative_to(ROOT)) for p in (*MEMBERS.values(), META))
    for member in members:
        if not isinstance(member, str):
            offered = toml(ROOT / member["path"] / "pyproject.toml")["project"]["optional-dependencies"]
            assert set(member["features"]) <= set(offered)


def test_there_are_pages() -> None:
    assert {README, *(p / "README.md" for p in MEMBERS.values())} <= set(PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_code_in_pages_is_code(page: Path) -> None:
    for code in texts_of(page, "python"):
        ast.parse(code)
    for text in texts_of(page, "json"):
        json.loads(text)
    for text in texts_of(page, "yaml"):
        yaml.safe_load(text)
    for text in texts_of(page, "toml"):
        tomllib.loads(text)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page}: {target}"
    for path in re.findall(r"`((?:tests|bench|packages|demo)/[\w./-]+)`", page.read_text()):
        assert (ROOT / path).exists() or (page.parent / path).exists(), f"{page}: {path}"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The folder of what stands for `python` and `probe`: each is a fork."""
    folder = tmp_path_factory.mktemp("programs")
    Forks("torch").commands(folder)
    return [folder]


@pytest.mark.parametrize("page", [README, MEMBERS["probe_torch"] / "README.md"], ids=["root", "probe-torch"])
def test_the_examples_run_as_written(page: Path, programs: list[Path], tmp_path: Path) -> None:
    """All python blocks of the page, one after another, as one script in an empty folder."""
    (tmp_path / "example.py").write_text("\n".join(texts_of(page, "python")))
    for _ in range(2):  # whoever has run it once runs it again
        code, printed = run_command("python example.py", tmp_path, Path(sys.executable), programs)
        assert code == 0, printed
    assert list((tmp_path / "dump").glob("step*/rank/dump.json"))
    assert printed.strip()


def test_the_first_example_needs_no_line_in_the_script(programs: list[Path], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(texts_of(README, "python")[0])
    command, shown = texts_of(README, "console")[0].removeprefix("$ ").split("\n", 1)
    assert run_command(command, tmp_path, Path(sys.executable), programs) == (0, shown)
    assert len(list((tmp_path / "dump").glob("step[02]/rank/dump.json"))) == 2


@pytest.mark.parametrize("home", [*MEMBERS.values(), META], ids=lambda home: home.name)
def test_what_a_package_index_shows_has_no_link_into_this_repository(home: Path) -> None:
    """The README is the project's page there, and its documents are in the wheel: a relative link would be dead."""
    shown = toml(home / "pyproject.toml")["project"]["readme"]
    for page in (home / shown, *(home / "docs").glob("*.md"), *home.glob("src/*/spec/*.md")):
        links = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
        assert not [link for link in links if "://" not in link and not link.startswith("#")], page


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_nothing_is_said_twice_in_one_paragraph(page: Path) -> None:
    """Merges have doubled sentences and rows before."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    lines = text.splitlines()
    heads = {line for line, below in itertools.pairwise(lines) if set(below) <= set("|-: ") and "|" in below}
    rows = [
        line for line in lines if line.startswith("|") and len(line) > 40 and not set(line) <= set("|-: ")
    ]
    assert not [row for row, times in Counter(rows).items() if times > 1 and row not in heads]
    prose = " ".join(line for line in text.splitlines() if not line.startswith(("|", "#")))
    sentences = [" ".join(s.split()) for s in re.split(r"(?<=[.:;])\s", prose)]
    assert not [s for s, times in Counter(sentences).items() if times > 1 and len(s) > 60]


def test_the_readme_says_how_pip_finds_the_wheels() -> None:
    commands = re.findall(r"^python3 -m pip install --find-links (\S+) (\S+)", README.read_text(), re.M)
    offered = toml(META / "pyproject.toml")["project"]["optional-dependencies"]
    assert commands[:2] == [("dist", f'"probe-all[{extra}]"') for extra in ("torch", "mindspore")]
    assert {"torch", "mindspore"} <= set(offered), "test_wheels.py installs by name from such a folder"


def test_every_line_that_installs_names_what_there_is() -> None:
    """On the pages, and in what an error advises."""
    projects = {home.name: toml(home / "pyproject.toml")["project"] for home in [*MEMBERS.values(), META]}
    texts = {page: page.read_text() for page in PAGES}
    for path in (file for home in MEMBERS.values() for file in home.glob("src/**/*.py")):
        strings = (node.value for node in ast.walk(tree(path)) if isinstance(node, ast.Constant))
        texts[path] = "\n".join(value for value in strings if isinstance(value, str))
    named = [
        (path, name, extra)
        for path, text in texts.items()
        for line in re.findall(r"\bpip install\b([^\n`|]*)", text)
        for name, extras in re.findall(r"\b(probe-\w+)(?:\[([\w,]+)\])?", line)
        for extra in extras.split(",")
    ]
    assert {name for _, name, _ in named} > {"probe-all", "probe-torch", "probe-mindspore", "probe-analysis"}
    bare = [
        (path, line)
        for path, text in texts.items()
        for line in re.findall(r".*install [^'\"\n`]*\w\[\w.*", text)
    ]
    assert bare == [], "zsh takes the brackets for a pattern"
    wrong = [
        n
        for n in named
        if n[1] not in projects or n[2] not in {"", *projects[n[1]].get("optional-dependencies", ())}
    ]
    assert wrong == []


def test_the_pytorch_without_cuda_is_one_line_everywhere() -> None:
    line = "pip install torch --index-url https://download.pytorch.org/whl/cpu"
    pages = [*map(ROOT.joinpath, ("README.md", "README.zh-CN.md", "docs/quick-start-torch.md"))]
    for page in (*pages, MEMBERS["probe_torch"] / "README.md", META / "README.md"):
        assert line in page.read_text()
    assert all(
        line in text for text in re.findall(r"[^`\n]*whl/cpu", "\n".join(p.read_text() for p in PAGES))
    )


def test_the_example_of_the_readme_is_short() -> None:
    assert len(texts_of(README, "python")[0].strip().splitlines()) <= 12


def test_the_tests_that_scripts_name_are_there() -> None:
    """pytest runs nothing at all where one of its arguments is missing."""
    named = set(re.findall(r"\btests/[\w./*-]+", (ROOT / "hatch.toml").read_text()))
    assert len(named) > 5
    assert [each for each in sorted(named) if not list(ROOT.glob(each))] == []


def test_the_top_of_the_repository_has_no_file_that_somebody_left() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    loose = {path for path in listed.splitlines() if "/" not in path and path != ".gitignore"}
    assert {path for path in loose if not path.endswith(".md")} == {
        "LICENSE",
        "hatch.toml",
        "mkdocs.yml",
        "pyproject.toml",
    }
