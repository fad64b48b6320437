"""The commands `airflow-coordination import kcl` and `import data-prepper`, run from a shell."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.cli.app import application
from airflow_provider_coordination.cli.commands import CommandContext
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.coordination.store import CoordinationStore, all_partitions
from airflow_provider_coordination.sources.kinesis.client import kinesis_client
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress
from airflow_provider_coordination.sources.kinesis.shards import Shard, list_shards
from airflow_provider_coordination.stores import StoreSettings, open_store
from tests.support import data_prepper_items, kcl_lease_table
from tests.support.clock import ManualClock
from tests.support.data_prepper_items import PARTITIONS, item_set, stored_item
from tests.support.kcl_lease_table import create_lease_table, lease_item

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SOURCE = "clicks|PARTITION"


class Shell:
    """Runs commands on a store, and keeps what the last one printed."""

    def __init__(self, store_url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.store_url = store_url
        self.out = self.err = ""
        self.sleep: Callable[[float], None] = lambda seconds: None
        self.has_person = False
        self.now = NOW
        self._capsys = capsys

    def run(self, *arguments: str) -> int:
        """Run `import` with these arguments; return the exit code."""
        context = CommandContext(
            clock=ManualClock(self.now), sleep=self.sleep, is_interactive=lambda: self.has_person, environment={}
        )
        given = ["import", *arguments, "--store", self.store_url]
        exit_code: int = application()(given, obj=context, standalone_mode=False)
        self.out, self.err = self._capsys.readouterr()
        return exit_code

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CoordinationStore]:
    store = open_store(StoreSettings.from_url(f"sqlite:///{tmp_path}/coordination.db"))
    store.initialize()
    yield store
    store.close()


@pytest.fixture
def shell(store: CoordinationStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(f"sqlite:///{tmp_path}/coordination.db", capsys)


def everything(store: CoordinationStore) -> list[Any]:
    return [p for identifier in store.source_identifiers() for p in all_partitions(store, identifier)]


# Kinesis Client Library


class KclApplication:
    """An application that was stopped: a stream of two shards, and its lease table."""

    def __init__(self, stream: str, shards: list[Shard], table: str, dynamodb: Any, kinesis: Any) -> None:
        self.stream = stream
        self.low, self.high = shards
        self._table = table
        self._dynamodb = dynamodb
        self._kinesis = kinesis

    def leaves(self, *items: dict[str, Any]) -> None:
        kcl_lease_table.write_items(self._dynamodb.client(), self._table, list(items))

    @property
    def arguments(self) -> list[str]:
        return [
            *("kcl", "--lease-table", self._table, "--stream", self.stream, "--source", "clicks"),
            *("--region", "us-east-1", "--endpoint-url", self._dynamodb.endpoint_url),
            *("--kinesis-endpoint-url", self._kinesis.endpoint_url),
        ]


@pytest.fixture
def kcl(kinesis: Any, dynamodb: Any, kinesis_stream: Callable[[int], str], dynamodb_table: str) -> KclApplication:
    stream = kinesis_stream(2)
    client = kinesis_client(AwsSettings(region="us-east-1", endpoint_url=kinesis.endpoint_url))
    create_lease_table(dynamodb.client(), dynamodb_table)
    return KclApplication(stream, list_shards(client, stream), dynamodb_table, dynamodb, kinesis)


def put(kinesis: Any, stream: str) -> str:
    answer = kinesis.client().put_record(StreamName=stream, Data=b"one", PartitionKey="k", ExplicitHashKey="0")
    return str(answer["SequenceNumber"])


def test_dry_run_shows_the_plan_and_writes_nothing(
    shell: Shell, store: CoordinationStore, kcl: KclApplication, kinesis: Any
) -> None:
    checkpoint = put(kinesis, kcl.stream)
    kcl.leaves(lease_item(3, kcl.low, checkpoint), lease_item(3, kcl.high, "TRIM_HORIZON"))

    assert shell.run(*kcl.arguments, "--dry-run") == 0

    lines = shell.out.splitlines()
    assert lines[0].split() == ["shard", "KCL", "checkpoint", "becomes", "note"]
    assert kcl.low.shard_id in lines[1] and f"read on after {checkpoint}" in lines[1]
    assert "Totals: 2 partition" in shell.out and "2 partitions would be written; nothing was written." in shell.out
    assert everything(store) == []


def test_yes_option_imports_and_repeating_changes_nothing(
    shell: Shell, store: CoordinationStore, kcl: KclApplication, kinesis: Any
) -> None:
    checkpoint = put(kinesis, kcl.stream)
    kcl.leaves(lease_item(1, kcl.low, checkpoint), lease_item(1, kcl.high, "TRIM_HORIZON"))

    assert shell.run(*kcl.arguments, "--yes") == 0
    assert "2 partitions written." in shell.out
    written = everything(store)
    assert {ShardProgress.from_mapping(p.progress).checkpoint for p in written} == {checkpoint, "TRIM_HORIZON"}

    assert shell.run(*kcl.arguments, "--yes") == 0
    assert "Nothing was written: the store already has everything that can be written." in shell.out
    assert everything(store) == written


def test_stream_may_be_named_by_its_arn(
    shell: Shell, store: CoordinationStore, kcl: KclApplication, kinesis: Any
) -> None:
    kcl.leaves(lease_item(1, kcl.low, put(kinesis, kcl.stream)), lease_item(1, kcl.high, "TRIM_HORIZON"))
    assert shell.run(*kcl.arguments, "--yes") == 0
    written = everything(store)
    kcl.stream = kinesis.client().describe_stream_summary(StreamName=kcl.stream)["StreamDescriptionSummary"][
        "StreamARN"
    ]

    assert shell.run(*kcl.arguments, "--yes") == 0

    assert "the store already has everything that can be written" in shell.out and everything(store) == written


def test_import_without_a_terminal_needs_yes(shell: Shell, store: CoordinationStore, kcl: KclApplication) -> None:
    kcl.leaves(lease_item(3, kcl.low, "TRIM_HORIZON"))

    assert shell.run(*kcl.arguments) == 2
    assert "there is no terminal to confirm; give --yes or --dry-run" in shell.err
    assert everything(store) == []


@pytest.mark.parametrize(("answer", "exit_code", "written"), [("n", 1, 0), ("y", 0, 1)])
def test_import_asks_for_confirmation(
    shell: Shell,
    store: CoordinationStore,
    kcl: KclApplication,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    exit_code: int,
    written: int,
) -> None:
    kcl.leaves(lease_item(3, kcl.low, "TRIM_HORIZON"))
    shell.has_person = True
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{answer}\n"))

    assert shell.run(*kcl.arguments) == exit_code
    assert "Write 1 partition into the store?" in shell.err
    assert len(everything(store)) == written


def test_refused_shard_stops_the_import(shell: Shell, store: CoordinationStore, kcl: KclApplication) -> None:
    kcl.leaves(lease_item(3, kcl.low, "AT_TIMESTAMP"), lease_item(3, kcl.high, "TRIM_HORIZON"))

    assert shell.run(*kcl.arguments, "--yes") == 1
    assert "nothing was written: 1 shard cannot be handled exactly" in shell.err and "--partial" in shell.err
    assert "--unread-from-trim-horizon" in shell.out
    assert everything(store) == []


def test_partial_import_parks_the_refused_shard(shell: Shell, store: CoordinationStore, kcl: KclApplication) -> None:
    kcl.leaves(lease_item(3, kcl.low, "AT_TIMESTAMP"), lease_item(3, kcl.high, "TRIM_HORIZON"))

    assert shell.run(*kcl.arguments, "--yes", "--partial") == 1

    assert "not handled exactly: 1 shard" in shell.err
    assert "refused, parked" in shell.out
    assert {ShardProgress.from_mapping(p.progress).shard_id: p.is_parked for p in everything(store)} == {
        kcl.low.shard_id: True,
        kcl.high.shard_id: False,
    }


def test_shard_at_latest_starts_at_the_first_import(
    shell: Shell, store: CoordinationStore, kcl: KclApplication
) -> None:
    kcl.leaves(lease_item(3, kcl.low, "LATEST"), lease_item(3, kcl.high, "TRIM_HORIZON"))

    assert shell.run(*kcl.arguments, "--yes") == 0
    assert "warning: 1 shards were at LATEST and are read from the time of this import on" in shell.err
    assert "read from 2026-03-01T12:00:00.000000Z on; records that arrived earlier" in shell.out
    written = everything(store)
    assert {ShardProgress.from_mapping(p.progress).checkpoint for p in written} == {
        "AT_TIMESTAMP:2026-03-01T12:00:00.000000Z",
        "TRIM_HORIZON",
    }

    shell.now += timedelta(hours=1)
    assert shell.run(*kcl.arguments, "--yes") == 0
    assert "Nothing was written: the store already has everything that can be written." in shell.out
    assert everything(store) == written


def test_shard_at_a_timestamp_starts_at_the_given_instant(
    shell: Shell, store: CoordinationStore, kcl: KclApplication
) -> None:
    kcl.leaves(lease_item(3, kcl.low, "AT_TIMESTAMP"), lease_item(3, kcl.high, "TRIM_HORIZON"))

    assert shell.run(*kcl.arguments, "--at-timestamp", "yesterday", "--yes") == 2
    assert shell.run(*kcl.arguments, "--at-timestamp", "5", "--yes") == 2
    assert "'5' is not an instant" in shell.err and everything(store) == []
    assert shell.run(*kcl.arguments, "--at-timestamp", "2026-03-01T06:00:00Z", "--yes") == 0
    assert "AT_TIMESTAMP:2026-03-01T06:00:00.000000Z" in {
        ShardProgress.from_mapping(p.progress).checkpoint for p in everything(store)
    }


def test_partition_with_other_progress_stops_the_import_and_stays(
    shell: Shell, store: CoordinationStore, kcl: KclApplication, kinesis: Any
) -> None:
    kcl.leaves(lease_item(3, kcl.low, "TRIM_HORIZON"), lease_item(3, kcl.high, "TRIM_HORIZON"))
    assert shell.run(*kcl.arguments, "--yes") == 0
    kcl.leaves(lease_item(3, kcl.low, put(kinesis, kcl.stream)))

    assert shell.run(*kcl.arguments, "--yes") == 1

    assert f"{kcl.low.shard_id}: the store already has its partition with other progress" in shell.err
    assert {ShardProgress.from_mapping(p.progress).checkpoint for p in everything(store)} == {"TRIM_HORIZON"}


def test_running_application_is_not_imported(shell: Shell, store: CoordinationStore, kcl: KclApplication) -> None:
    kcl.leaves(lease_item(3, kcl.low, "TRIM_HORIZON", counter=1))
    shell.sleep = lambda seconds: kcl.leaves(lease_item(3, kcl.low, "TRIM_HORIZON", counter=2))

    assert shell.run(*kcl.arguments, "--yes") == 1
    assert "the application still writes to its lease table" in shell.err
    assert everything(store) == []


def test_json_is_one_object_per_shard(shell: Shell, kcl: KclApplication) -> None:
    kcl.leaves(lease_item(3, kcl.low, "AT_TIMESTAMP"), lease_item(3, kcl.high, "TRIM_HORIZON"))

    shell.run(*kcl.arguments, "--dry-run", "--json")

    refused, imported = shell.records()
    assert (refused["shard"], refused["becomes"], refused["checkpoint"]) == (
        kcl.low.shard_id,
        "refused",
        "AT_TIMESTAMP",
    )
    assert (imported["becomes"], imported["state"], imported["note"]) == ("partition", "new", "")


def test_dry_run_with_findings_exits_with_one(shell: Shell, kcl: KclApplication) -> None:
    kcl.leaves(lease_item(3, kcl.low, "AT_TIMESTAMP"))

    assert shell.run(*kcl.arguments, "--dry-run") == 1


# Data Prepper


@pytest.fixture
def items() -> dict[str, Any]:
    return item_set(NOW)


@pytest.fixture
def table(dynamodb: Any, dynamodb_table: str, items: dict[str, Any]) -> str:
    data_prepper_items.create_table(dynamodb.client(), dynamodb_table)
    data_prepper_items.write_items(dynamodb.client(), dynamodb_table, items)
    return dynamodb_table


@pytest.fixture
def own_table(dynamodb: Any, table: str, capsys: pytest.CaptureFixture[str]) -> Shell:
    """A shell whose store is Data Prepper's own table."""
    return Shell(f"dynamodb://{table}?region=us-east-1&endpoint_url={dynamodb.endpoint_url}", capsys)


def test_adoption_in_place_shows_items_and_repairs(own_table: Shell) -> None:
    assert own_table.run("data-prepper", "--dry-run", "--json") == 0

    families = {record["source_identifier"]: record for record in own_table.records()}
    assert families[PARTITIONS]["statuses"] == {"ASSIGNED": 2, "CLOSED": 2, "COMPLETED": 1, "UNASSIGNED": 8}
    assert families[PARTITIONS]["repairs"] == {"no longer expires": 8, "queued as of now": 1}
    assert own_table.run("data-prepper", "--dry-run") == 0
    assert "10 items would be repaired; nothing was written." in own_table.out
    assert "Leased now: 1 item" in own_table.err


def test_adoption_in_place_repairs_once(own_table: Shell, dynamodb: Any, table: str, items: Any) -> None:
    assert own_table.run("data-prepper", "--yes") == 0
    assert "10 items repaired." in own_table.out
    assert "expirationTime" not in stored_item(dynamodb.client(), table, items["fresh"])

    assert own_table.run("data-prepper", "--yes") == 0
    assert "No items to repair" in own_table.out


def test_only_named_sources_are_adopted(own_table: Shell, dynamodb: Any, table: str, items: Any) -> None:
    assert own_table.run("data-prepper", "--source", "another-pipeline", "--yes") == 0
    assert own_table.run("data-prepper", "--prefix", "test", "--yes") == 0

    assert stored_item(dynamodb.client(), table, items["fresh"]) == items["fresh"]


def test_damaged_item_is_reported_and_others_are_adopted(
    own_table: Shell, dynamodb: Any, table: str, items: Any
) -> None:
    damaged = items["fresh"] | {"sourcePartitionStatus": {"S": "PAUSED"}}
    dynamodb.client().put_item(TableName=table, Item=damaged)

    assert own_table.run("data-prepper", "--yes") == 1

    assert "'PAUSED' is not a valid PartitionStatus" in own_table.err
    assert stored_item(dynamodb.client(), table, damaged) == damaged
    assert "expirationTime" not in stored_item(dynamodb.client(), table, items["due"])


def test_copy_takes_everything_and_leaves_the_table_alone(
    shell: Shell, store: CoordinationStore, dynamodb: Any, table: str, items: Any
) -> None:
    arguments = [
        "data-prepper",
        "--from-table",
        table,
        "--region",
        "us-east-1",
        "--endpoint-url",
        dynamodb.endpoint_url,
    ]

    assert shell.run(*arguments, "--dry-run") == 0
    assert everything(store) == []
    assert shell.run(*arguments, "--yes") == 0

    assert "Totals: 18 new, 0 present, 0 in conflict, 0 cannot be copied" in shell.out
    assert len(everything(store)) == len(items)
    assert store.count_by_status(PARTITIONS)[PartitionStatus.COMPLETED] == 1
    assert all(stored_item(dynamodb.client(), table, each) == each for each in items.values())
    assert shell.run(*arguments, "--yes") == 0
    assert "Nothing was written" in shell.out


def test_unstorable_item_stops_the_copy_unless_skipped(
    shell: Shell, store: CoordinationStore, dynamodb: Any, table: str, items: Any
) -> None:
    large = items["fresh"] | {"partitionProgressState": {"S": "x" * 70_000}}
    dynamodb.client().put_item(TableName=table, Item=large)
    arguments = [
        "data-prepper",
        "--from-table",
        table,
        "--region",
        "us-east-1",
        "--endpoint-url",
        dynamodb.endpoint_url,
    ]

    assert shell.run(*arguments, "--yes") == 1
    assert "the limit is 65536" in shell.err and everything(store) == []
    assert shell.run(*arguments, "--yes", "--partial") == 1
    assert len(everything(store)) == len(items) - 1


def test_store_outside_dynamodb_needs_the_table_name(shell: Shell) -> None:
    assert shell.run("data-prepper", "--yes") == 2
    assert "name Data Prepper's table" in shell.err
