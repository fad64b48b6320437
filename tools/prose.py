"""The prose check of `make lint`: unwanted phrases, long table cells and sentences, and names of tests.

Phrases are looked up in every text file of the repository: prose, messages, comments and identifiers. Cells and
sentences are counted in the manual. Vale would do the same, but its packages download a binary from elsewhere.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PHRASES = {
    "told": "reported, passed, given",
    "tell": "report, say, show",  # but not the method of a file
    "tells": "reports, says, shows",
    "telling": "reporting, messages",
    "so many": "the number of",
    "so long": "how long, the duration",
    "so much": "how much",
    "so often": "how often",
    "in vain": "without a result",
    "meanwhile": "during that time, while",
    "what of it": "the rest of it",
    "that of": "name the thing, or use the possessive",
    "the rarer": "less often",
    "whence": "from where",
    "anew": "again",
    "mend": "fix, repair",
    "mends": "fixes, repairs",
    "mended": "fixed, repaired",
    "mending": "fixing, repairing",
    "awaiting a word": "awaiting acknowledgment",
}
"""What not to write, and what to write."""
IN_FILES = r"tell\(|whence: int\b|(?<=\[)whence\]"
"""The names of Python's file API: the method `tell`, and the parameter `whence` of `seek`."""
PHRASE = re.compile(
    rf"(?<![A-Za-z])(?!{IN_FILES})(?:{'|'.join(re.sub(' ', r'[ _-]', each) for each in PHRASES)})(?![A-Za-z])",
    re.IGNORECASE,
)
CHECKED = (".cjs", ".js", ".md", ".mjs", ".py", ".sh", ".toml", ".ts", ".tsx", ".yaml", ".yml")
NAMES = ("Makefile",)
UNCHECKED = ("tools/prose.py", "tests/test_prose.py")
CELL_WORDS = 25
SENTENCE_WORDS = 30
"""The aim is twenty. A list of names may need more."""

TEST = re.compile(r"^ *(?:async )?def test_(\w+)\(", re.MULTILINE)
TEST_WORDS = 10
HEADLESS = frozenset(
    [
        *("a", "an", "how", "if", "it", "nobody", "nothing", "one", "somebody", "that", "the", "there"),
        *(
            "what",
            "whatever",
            "when",
            "whenever",
            "where",
            "wherever",
            "which",
            "while",
            "who",
            "whoever",
            "whom",
            "whose",
            "why",
        ),
    ]
)
"""With what no name of a test begins: it begins with the unit."""

FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
CODE = re.compile(r"`[^`]*`")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


def phrases(path: str, text: str) -> Iterator[str]:
    """Yield a finding for each phrase of a text that is not wanted.

    :param path: the file, as findings name it.
    :param text: what the file holds.
    """
    for number, line in enumerate(text.splitlines(), 1):
        for found in PHRASE.finditer(line):
            phrase = re.sub(r"[_-]", " ", found[0].lower())
            yield f"{path}:{number}: {found[0]!r}; write: {PHRASES[phrase]}"


def test_names(path: str, text: str) -> Iterator[str]:
    """Yield a finding for each name of a test that is too long, or does not begin with the unit that is tested."""
    for found in TEST.finditer(text):
        first, *others = found[1].split("_")
        where = f"{path}:{text.count(chr(10), 0, found.start()) + 1}: test_{found[1]}"
        if len(others) >= TEST_WORDS:
            yield f"{where} has {len(others) + 1} words; at most {TEST_WORDS}"
        if first in HEADLESS:
            yield f"{where} begins with {first!r}; begin with the unit that is tested"


def words(text: str) -> int:
    """Return how many words a piece of Markdown has: a link counts by its text, code as one word."""
    return len(re.findall(r"[\w'’-]+", CODE.sub("code", LINK.sub(r"\1", text))))


def lines_of_prose(text: str) -> list[str]:
    """Return the lines of a page with code and comments left empty, so that line numbers stay."""
    for pattern in (FENCE, COMMENT):
        text = pattern.sub(lambda found: "\n" * found[0].count("\n"), text)
    return text.splitlines()


def cells(path: str, text: str) -> Iterator[str]:
    """Yield a finding for each table cell of a page that has too many words."""
    for number, line in enumerate(lines_of_prose(text), 1):
        if line.lstrip().startswith("|"):
            for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]:
                if (count := words(cell)) > CELL_WORDS:
                    yield f"{path}:{number}: a table cell of {count} words; at most {CELL_WORDS}: {cell.strip()[:60]!r}"


def sentences(path: str, text: str) -> Iterator[str]:
    """Yield a finding for each sentence of a page that has too many words."""
    for number, paragraph in paragraphs(text):
        for sentence in SENTENCE_END.split(paragraph):
            if (count := words(sentence)) > SENTENCE_WORDS:
                yield f"{path}:{number}: a sentence of {count} words; at most {SENTENCE_WORDS}: {sentence[:60]!r}"


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Yield the paragraphs and list items of a page, each with its first line's number; no headings and no tables."""
    first, gathered = 0, ""
    for number, line in enumerate([*lines_of_prose(text), ""], 1):
        stripped = line.strip()
        if not stripped or re.match(r"[#|>]|:::|!!!|\s*([-*]|\d+\.)\s", line):
            if gathered:
                yield first, gathered
            first, gathered = 0, ""
        if stripped and not re.match(r"[#|]|:::|!!!", stripped):
            first = first or number
            gathered = f"{gathered} {stripped}".strip()


def findings() -> Iterator[str]:
    """Yield what is wrong with the repository's texts."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    for path in listed:
        file = REPOSITORY / path
        if path in UNCHECKED or not (path.endswith(CHECKED) or file.name in NAMES) or not file.is_file():
            continue
        text = file.read_text()
        yield from phrases(path, text)
        if path.startswith("tests/") and file.name.startswith("test_"):
            yield from test_names(path, text)
        if path.endswith(".md") and not path.startswith(("CHANGELOG", "benchmarks/")):
            yield from cells(path, text)
            yield from sentences(path, text)


def main() -> int:
    """Print the findings; return 1 if there are any."""
    found = list(findings())
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
