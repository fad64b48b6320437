"""A SQLite store of the source `clicks`, and a runner of commands."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from airflow_provider_coordination.cli.app import application
from airflow_provider_coordination.cli.commands import CommandContext
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.partition import PARKED_UNTIL, Partition
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.stores import StoreSettings, open_store
from tests.support.clock import ManualClock


@dataclass(frozen=True)
class CommandResult:
    """The exit code and output of a command."""

    exit_code: int
    out: str
    err: str

    @property
    def records(self) -> list[dict[str, Any]]:
        """What it wrote as JSON; fails where anything else is among it."""
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass
class Shell:
    """Runs commands on a store by a given clock, interactively or not."""

    url: str
    clock: ManualClock
    environment: dict[str, str] = field(default_factory=dict)
    sleep: Callable[[float], None] = field(default=lambda seconds: None)

    def __call__(
        self,
        *args: str,
        answer: str | None = None,
        before_the_answer: Callable[[], object] = lambda: None,
        store: bool = True,
    ) -> CommandResult:
        """Run `airflow-coordination args`; `answer` is what the person at the terminal types."""

        def is_interactive() -> bool:
            before_the_answer()
            return answer is not None

        context = CommandContext(
            clock=self.clock,
            sleep=self.sleep,
            is_interactive=is_interactive,
            environment=self.environment,
            user=lambda: "ann",
        )
        given = [*args, "--store", self.url] if store else list(args)
        result = CliRunner().invoke(application(), given, obj=context, input=answer, catch_exceptions=False)
        return CommandResult(result.exit_code, result.stdout, result.stderr)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/coordination.db"


@pytest.fixture
def store(store_url: str) -> Iterator[CoordinationStore]:
    store = open_store(StoreSettings.from_url(store_url))
    store.initialize()
    yield store
    store.close()


@pytest.fixture
def shell(store_url: str, clock: ManualClock) -> Shell:
    return Shell(store_url, clock)


@dataclass
class Clicks:
    """The source `clicks`, on which the owner `host:a` works."""

    store: CoordinationStore
    clock: ManualClock

    def __post_init__(self) -> None:
        self.a = self.owner("host:a")

    def owner(self, name: str, source: str = "clicks", prefix: str | None = None) -> SourceCoordinator:
        coordinator = SourceCoordinator(self.store, source, name, prefix=prefix, clock=self.clock)
        coordinator.initialize()
        return coordinator

    def waiting(self, *keys: str) -> None:
        self.a.create_partitions({key: {"rows_done": 3} for key in keys})

    def leased(self, *keys: str) -> None:
        for key in keys:
            self.waiting(key)
            now = self.clock.now()
            self.store.transact(update=[self[key].acquired("host:a", now + self.a.leases.ownership_timeout, now)])

    def parked(self, *keys: str) -> None:
        for key in keys:
            self.waiting(key)
            self.store.transact(update=[self[key].failed("no luck").resting(PARKED_UNTIL)])

    def completed(self, *keys: str) -> None:
        for key in keys:
            self.waiting(key)
            self.store.transact(update=[self[key].completed(self.clock.now())])

    def __getitem__(self, key: str) -> Partition:
        partition = self.store.get("clicks|PARTITION", key)
        assert partition is not None
        return partition

    def __contains__(self, key: str) -> bool:
        return self.store.get("clicks|PARTITION", key) is not None


@pytest.fixture
def clicks(store: CoordinationStore, clock: ManualClock) -> Clicks:
    return Clicks(store, clock)
