"""The prose check finds its words and names, and nothing else."""

from __future__ import annotations

import pytest

from tools import prose


@pytest.mark.parametrize(
    ("line", "phrase"),
    [
        ("The job is told to stop.", "told"),
        ("told_at = 1", "told"),
        ("def is_told(): ...", "told"),
        ("Meanwhile the next round lands.", "Meanwhile"),
        ("the clock here and that of the store", "that of"),
        ("so_many = 3", "so_many"),
        ("- So long it waits.", "So long"),
    ],
)
def test_unwanted_phrase_is_found_with_its_line(line: str, phrase: str) -> None:
    [finding] = prose.phrases("page.md", f"first\n{line}\n")
    assert finding.startswith(f"page.md:2: {phrase!r}; write: ")


@pytest.mark.parametrize(
    "line",
    [
        "stream.tell()",
        "def seek(self, offset: int, whence: int) -> int:",
        "}[whence]",
        "untold",
        "recommended",
        "that offset",
        "also longer",
    ],
)
def test_word_containing_an_unwanted_one_is_not_found(line: str) -> None:
    assert list(prose.phrases("page.md", line)) == []


def test_long_cell_is_found_and_code_counts_one_word() -> None:
    long, short = " ".join(["word"] * 26), " ".join(["word"] * 24 + ["`a | b c d`".replace("|", r"\|")])
    [finding] = prose.cells("page.md", f"| a | b |\n|---|---|\n| {short} | {long} |\n")
    assert finding.startswith("page.md:3: a table cell of 26 words")


def test_long_sentence_is_found_at_its_paragraph_start() -> None:
    sentence = " ".join(["word"] * 31)
    text = f"# Title\n\nShort one. Another one.\n{sentence}.\n\n```text\n{sentence}\n```\n"
    [finding] = prose.sentences("page.md", text)
    assert finding.startswith("page.md:3: a sentence of 31 words")


def test_list_items_and_tables_are_separate_sentences() -> None:
    half = " ".join(["word"] * 20)
    assert list(prose.sentences("page.md", f"- {half}\n- {half}\n\n| {half} | {half} |\n")) == []


def test_checked_phrases_have_a_replacement() -> None:
    assert all(prose.PHRASES.values())


def test_long_test_name_is_found_with_its_line() -> None:
    name = "_".join(["word"] * 11)
    [finding] = prose.test_names("tests/test_x.py", f"\n\ndef test_{name}() -> None: ...\n")
    assert finding == f"tests/test_x.py:3: test_{name} has 11 words; at most 10"


@pytest.mark.parametrize("name", ["what_is_written", "a_lease_expires", "whoever_asks"])
def test_name_without_its_unit_is_found(name: str) -> None:
    [finding] = prose.test_names("tests/test_x.py", f"    async def test_{name}(self): ...\n")
    assert "begin with the unit that is tested" in finding


def test_short_name_with_its_unit_passes() -> None:
    assert list(prose.test_names("tests/test_x.py", "def test_lease_expires_once(): ...\n")) == []
