"""`recover` fails at each call to the store, to tables and to files; a second run completes it.

The next attempt recovers the source, and its jobs deliver everything, while the first stands still, or after it died.
Then the first goes on. Each event is in each table once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.cli import commands
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.cli.conftest import Shell
from tests.cli.test_recovery import TableFolder, lost, once, run, with_a_failing
from tests.support.depth import at_depth
from tests.support.freezing import Strike
from tests.support.striking import STRIKES, calls_of, counted_store, strike_at
from tests.support.table_jobs import StreamIntoTables, payloads

pytestmark = [pytest.mark.integration, pytest.mark.deep, pytest.mark.usefixtures("store")]


class StruckRecovery:
    """A source that loses its store again and again; each time a batch is in one of its tables alone.

    :param folder: an empty folder.
    :param shell: calls commands.
    """

    def __init__(self, folder: Path, shell: Shell) -> None:
        self.lake = TableFolder(folder)
        self.shell = shell
        self.stream = StreamIntoTables(folder, self.lake.tables, shards=1)
        self.stream.send(10)
        self.stream.sync()
        run(self.stream)
        self.store = InMemoryStore()

    def open(self, settings: Any) -> Any:
        return counted_store(self.store)

    def begin(self) -> StruckRecovery:
        """Let a batch arrive in one table, and lose the store."""
        for worker in list(self.stream.workers.values()):
            self.stream.stop(worker)
        self.stream.send(2)
        with_a_failing(self.lake, "iceberg", self.stream)
        self.store = InMemoryStore()
        self.store.initialize()
        return self

    def recover(self, *options: str) -> int:
        tables = [option for kind in ("delta", "iceberg") for option in ("--from-table", self.lake.as_given[kind])]
        landing = ("--landing-path", str(self.lake.folder / "_landing"))
        return self.shell("recover", "clicks", *tables, *landing, "--yes", *options).exit_code

    def by_victim(self) -> None:
        self.recover()

    def by_successor(self) -> None:
        """Repeat the command, and let jobs deliver what is left and what is new."""
        assert self.recover("--force") == 0
        lost(self.stream, self.store)
        self.stream.send(2)
        self.stream.sync()
        self.stream.settle()

    def check(self, struck: str) -> None:
        """Let jobs go on, and check that each event is in each table once."""
        self.stream.send(1)
        self.stream.settle()
        for kind in ("delta", "iceberg"):
            assert payloads(self.lake.rows(kind)) == once(self.stream.sent), f"{kind}: {struck}"


@pytest.mark.parametrize("strike", STRIKES)
def test_recovery_struck_at_any_call_loses_nothing(
    strike: Strike, tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = StruckRecovery(tmp_path, shell)
    monkeypatch.setattr(commands, "open_store", story.open)
    number = len(calls_of(story.begin()))
    assert number > 10
    story.by_successor()
    for point in range(1 + STRIKES.index(strike), number + 1, at_depth(short=20, deep=1)):
        story.check(strike_at(point, strike, story.begin()))
