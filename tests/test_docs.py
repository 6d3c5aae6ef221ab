"""The pages for people name only what there is: pages, files, plays, settings, commands with their options."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from qwenlab import cli
from qwenlab.settings import Settings

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
# sources that rules and memory cite are other projects' files; so is what they call by a name like a setting
CITING = {"rules.md", "memory.md", "choice.md", "gpu_bench.md", "patches.md"}
FOLDERS = "qwenlab|tests|plays|tasks|script|bench|inventory|group_data|templates"
PLACEHOLDER = re.compile(r"[A-Z*<]{2}|\*|<")
CALLING = [page for page in PAGES if "python -m qwenlab " in page.read_text()]


def named(pattern: str, page: Path) -> list[str]:
    """What a pattern's first group finds in a page."""
    return sorted(set(re.findall(pattern, page.read_text())))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_link_leads_to_a_file_of_the_repository(page: Path) -> None:
    links = [link for link in named(r"\]\(([^)#]+)[^)]*\)", page) if not link.startswith("http")]
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in CITING], ids=lambda page: page.name)
def test_settings_and_files_that_a_page_names_are_there(page: Path) -> None:
    settings = {f"qwen_{name}" for name in Settings.model_fields}
    assert [name for name in named(r"\b(qwen_[a-z0-9_]+)\b", page) if name not in settings] == []
    files = [path.rstrip(".") for path in named(rf"(?<![\w./-])((?:{FOLDERS})/[\w./*<-]+\.\w+)", page)]
    assert [path for path in files if not PLACEHOLDER.search(path) and not (ROOT / path).exists()] == []


def calls(page: Path) -> list[list[str]]:
    """The words after `python -m qwenlab` of every call in a page, comments and what follows a pipe left out."""
    text = page.read_text().replace("\\\n", " ")
    return [call.split() for call in re.findall(r"python -m qwenlab ((?:[\w./@={},:?-]|\[|\]| )+)", text)]


@cache
def options_of(words: tuple[str, ...]) -> frozenset[str]:
    """The options that a command's help lists."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "200")
        shown: list[str] = []
        patch.setattr("argparse.ArgumentParser._print_message", lambda _, text, file=None: shown.append(text))
        assert cli.main([*words, "--help"]) == 0
    return frozenset(re.findall(r"--[a-z][a-z-]+", "".join(shown)))


@pytest.mark.parametrize("page", CALLING, ids=lambda page: page.name)
def test_a_command_that_a_page_names_takes_these_options(page: Path) -> None:
    for command, *rest in calls(page):
        assert command in cli.COMMANDS, f"{page.name}: {command}"
        verb = (command, rest[0]) if command == "patches" and rest else (command,)
        given = {word.strip("[]").partition("=")[0] for word in rest if word.startswith(("--", "[--"))}
        assert given <= options_of(verb), f"{page.name}: {command}"
