"""The list of messages finds what the code logs and raises, and leaves out what the tables explain."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import messages


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("log.warning('shard %s is gone', shard)", ["shard … is gone"]),
        ("raise ConfigurationError(f'field {name} must not be empty')", ["field … must not be empty"]),
        ("raise HTTPException(404, f'no job {job!r}')", ["…", "no job …"]),
        ("raise typer.BadParameter('give ' + 'one key', param_hint='KEY')", ["give one key", "KEY"]),
        ("def wrong(why: str) -> SourceError | None: ...\nraise wrong('it is closed')", ["it is closed"]),
        ("def right(text: str) -> str: ...\nright('it is open')", []),
        ("raise AssertionError('unreachable')", []),
        ("log.info('job starts')", []),
    ],
)
def test_warnings_and_errors_are_found_without_their_values(code: str, found: list[str], tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(code)
    assert list(messages.messages(module)) == found


def test_message_explained_in_a_table_is_not_listed_again() -> None:
    message = "partition … is already parked"
    assert f"| `{message}` |" in messages.section("# Troubleshooting\n")
    assert f"| `{message}` |" not in messages.section("| `… is already parked` | It is parked. | Reopen it. |\n")


def test_message_page_follows_the_longest_prefix() -> None:
    assert messages.described_in("supervisor/druid/rows.py") == "druid.md"
    assert messages.described_in("supervisor/store.py") == "specs.md"
    with pytest.raises(LookupError, match="messages of new_layer"):
        messages.described_in("new_layer/x.py")


def test_areas_are_package_paths_with_a_page() -> None:
    assert messages.AREAS
    for prefix, page in messages.AREAS:
        assert list(messages.PACKAGE.glob(f"{prefix}*")), prefix
        assert (messages.PAGE.parent / page).exists(), page
