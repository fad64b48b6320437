"""Write the last section of `docs/troubleshooting.md`, which lists every message that the rest of the page lacks.

The tables above that section explain messages one by one. A message that needs no explanation is listed below the page
that describes what it names, so that a search for it finds that page. Run this after you add or change a message: a
test compares the section with the code.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = REPOSITORY / "airflow_provider_coordination"
PAGE = REPOSITORY / "docs" / "troubleshooting.md"
HEADING = "## Other messages"
INTRODUCTION = """
These messages need no explanation: each says what is wrong. They are listed by the page that describes the fields,
commands or objects they name.
"""
AREAS = (
    ("aws.py", "connection.md"),
    ("settings.py", "job.md"),
    ("versions.py", "upgrades.md"),
    ("cli/imports.py", "importing.md"),
    ("cli/supervisor", "supervisor_verbs.md"),
    ("cli", "commands.md"),
    ("diagnosis", "commands.md"),
    ("coordination/acknowledgment", "acknowledgments.md"),
    ("coordination", "coordination.md"),
    ("hooks", "connection.md"),
    ("stores", "connection.md"),
    ("sources/own_source.py", "your_own_source.md"),
    ("operators/supervis", "supervisor.md"),
    ("operators/prepared_jobs.py", "clusters.md"),
    ("operators", "operators.md"),
    ("sources/dynamodb", "dynamodb_source.md"),
    ("sources/jdbc", "jdbc.md"),
    ("sources/kinesis/kcl", "migrate_kcl.md"),
    ("sources/kinesis", "kinesis.md"),
    ("sources/opensearch", "opensearch.md"),
    ("sources/s3", "s3.md"),
    ("sources", "your_own_source.md"),
    ("spark/kinesis/data_source", "data-source.md"),
    ("spark/sinks/delta", "delta.md"),
    ("spark/sinks/iceberg", "iceberg.md"),
    ("spark/sql", "sink_sql.md"),
    ("spark/sinks", "sinks.md"),
    ("spark/writes/iceberg", "iceberg.md"),
    ("spark/writes/sql", "sink_sql.md"),
    ("spark/writes", "sinks.md"),
    ("spark", "job.md"),
    ("supervisor/druid", "druid.md"),
    ("supervisor/ddl.py", "schema.md"),
    ("supervisor", "specs.md"),
    ("task_groups/supervised.py", "supervisor.md"),
    ("task_groups", "task_group.md"),
    ("decorators", "operators.md"),
    ("sensors", "waiting.md"),
    ("triggers", "triggers.md"),
    ("ui", "http_api.md"),
)
"""The page that describes what a module's messages name; the first prefix of a module's path that fits counts."""
ANY_TEXT = "…"
FEWEST_WORDS = 4
"""A text with fewer words of its own is put together from others, such as `partition …: …`."""
LOGGED = ("warning", "error", "exception")
ERROR = re.compile(r"(?!AssertionError)\w*(?:Error|Exception|Invalid|BadParameter)")
"""What a user may see: an assertion is a defect of the package."""


def messages(path: Path) -> Iterator[str]:
    """Yield what a module logs as warnings and errors, and the texts of its errors; `…` stands for each value.

    :param path: the module.
    """
    tree = ast.parse(path.read_text())
    makers = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.returns is not None and ERROR.search(ast.unparse(node.returns))
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if called in LOGGED:
                yield from map(text, node.args[:1])
            elif called in makers or ERROR.fullmatch(called):
                yield from map(text, [*node.args, *(keyword.value for keyword in node.keywords)])


def text(node: ast.expr) -> str:
    """Return a text of the code with `…` where values go; only `…` for anything else."""
    if isinstance(node, ast.JoinedStr):
        return "".join(text(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return text(node.left) + text(node.right)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"%[\w.]*[sdgfr]", ANY_TEXT, node.value)
    return ANY_TEXT


def explained(page: str) -> list[re.Pattern[str]]:
    """Return a pattern for each message that the tables of a page explain.

    :param page: its text.
    """
    rows = re.findall(r"^\| `(.*?)` \|", page, re.MULTILINE)
    return [re.compile(".*".join(map(re.escape, row.replace(r"\|", "|").split(ANY_TEXT))), re.DOTALL) for row in rows]


def section(page: str) -> str:
    """Return the section as it should be.

    :param page: the page's text, with or without the section.
    :raises LookupError: if no page is known for a module that has such a message.
    """
    patterns = explained(page.partition(HEADING)[0])
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(PACKAGE.rglob("*.py")):
        module = path.relative_to(PACKAGE).as_posix()
        for message in messages(path):
            few = len(re.findall(r"[A-Za-z_]{2,}", message)) < FEWEST_WORDS
            if not few and not any(pattern.search(message) for pattern in patterns):
                found[described_in(module)].add(" ".join(message.split()))
    tables = []
    for name in sorted(found):
        rows = sorted(found[name], key=lambda message: message.lstrip("…: ").lower())
        lines = [f"| {quoted(message)} |" for message in rows]
        title = (PAGE.parent / name).read_text().partition("\n")[0].lstrip("# ")
        tables.append("\n".join([f"### {title}", "", f"| [{name}]({name}) |", "|---|", *lines]))
    return "\n\n".join([HEADING + "\n" + INTRODUCTION.rstrip(), *tables]) + "\n"


def described_in(module: str) -> str:
    """Return the page that describes what a module's messages name."""
    for prefix, page in AREAS:
        if module.startswith(prefix):
            return page
    raise LookupError(f"no page is known for the messages of {module}; add its prefix to AREAS")


def quoted(message: str) -> str:
    """Return a message as the cell of a table."""
    escaped = message.replace("|", r"\|")
    return f"`` {escaped} ``" if "`" in message else f"`{escaped}`"


def main() -> int:
    """Write the section into the page; return 0."""
    page = PAGE.read_text()
    PAGE.write_text(page.partition(HEADING)[0].rstrip() + "\n\n" + section(page))
    return 0


if __name__ == "__main__":
    sys.exit(main())
