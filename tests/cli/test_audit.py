"""The commands `audit` and `repair` on a dataset that jobs have written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_provider_coordination.coordination.store import CoordinationStore, all_partitions
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress
from airflow_provider_coordination.stores import StoreSettings, open_store
from tests.audit.test_dataset_audit import AuditedStream
from tests.cli.conftest import CommandResult, Shell

ALERTS = "foreach_batch: {function: 'shop.alerts:send', staging_path: /staging, name: alerts}"


@pytest.fixture
def stream(tmp_path: Path) -> AuditedStream:
    return AuditedStream(tmp_path / "lake")


@pytest.fixture
def store(store_url: str, stream: AuditedStream) -> CoordinationStore:
    opened = open_store(StoreSettings.from_url(store_url))
    opened.initialize()
    opened.create(list(all_partitions(stream.store, "clicks|PARTITION")))
    return opened


@pytest.fixture
def run(shell: Shell, store: CoordinationStore, stream: AuditedStream) -> Callable[..., CommandResult]:
    shell.clock.advance((stream.clock.now() - shell.clock.now()).total_seconds() + 60)

    def command(name: str, *options: str, **given: str | None) -> CommandResult:
        return shell(name, "clicks", "--sink", f"parquet: {{path: {stream.folder}}}", *options, **given)

    return command


def test_audit_of_a_sound_source_succeeds(run: Callable[..., CommandResult]) -> None:
    ended = run("audit", "--rows")
    assert ended.exit_code == 0 and "1 of 1 partitions are complete" in ended.out
    shown = run("audit", "--all").out
    assert "complete" in shown and "60" in shown


def test_audit_names_range_cause_and_remedy(run: Callable[..., CommandResult], stream: AuditedStream) -> None:
    lost = stream.ledger()[1]["batch"]
    stream.files()[1].unlink()
    ended = run("audit")
    assert ended.exit_code == 1 and "1 findings, the most severe is gap" in ended.err
    joined = "".join(ended.out.split())
    assert f"({lost['start']},{lost['end']}]gap:batch" in joined and "repairclicks" in joined


def test_audit_prints_json_for_scripts(run: Callable[..., CommandResult], stream: AuditedStream) -> None:
    stream.files()[1].unlink()
    partition, finding = run("audit", "--json").records
    assert (partition["type"], partition["batches"], partition["rows"]) == ("partition", 2, 40)
    assert (finding["type"], finding["state"], finding["batches"]) == ("finding", "gap", 1)


def test_audit_compares_dead_letters_without_their_numbers(run: Callable[..., CommandResult], tmp_path: Path) -> None:
    ended = run("audit", "--dead-letters", str(tmp_path / "dead"), "--json")
    assert any("there is no file in" in record.get("reason", "") for record in ended.records)
    assert not [r for r in ended.records if r["type"] == "finding" and r["partition_key"]]


def test_repair_shows_its_plan_and_asks(
    run: Callable[..., CommandResult], stream: AuditedStream, store: CoordinationStore
) -> None:
    lost = stream.ledger()[1]["batch"]
    stream.files()[1].unlink()
    before = list(all_partitions(store, "clicks|PARTITION"))
    plan = run("repair", "--dry-run")
    assert plan.exit_code == 0 and "reads the range again, and then continues after" in " ".join(plan.out.split())
    assert run("repair", answer="n").exit_code == 1
    assert run("repair").exit_code == 2, "there is no terminal"
    assert list(all_partitions(store, "clicks|PARTITION")) == before
    assert run("repair", answer="y").exit_code == 0
    [partition] = all_partitions(store, "clicks|PARTITION")
    progress = ShardProgress.from_mapping(partition.progress)
    assert (progress.checkpoint, progress.end) == (lost["start"], lost["end"])


def test_repair_names_sinks_of_unknown_contents(run: Callable[..., CommandResult], stream: AuditedStream) -> None:
    stream.files()[1].unlink()
    plan = run("repair", "--dry-run", "--sink", ALERTS)
    assert "it is not known what these sinks have, and they get each range too: alerts" in " ".join(plan.err.split())


def test_repair_without_a_gap_changes_nothing(run: Callable[..., CommandResult]) -> None:
    ended = run("repair", "--yes")
    assert ended.exit_code == 0 and "No gap to repair" in ended.err
    assert run("repair", "--json", "--yes").records == []


def test_repair_prints_json_for_scripts(run: Callable[..., CommandResult], stream: AuditedStream) -> None:
    stream.files()[1].unlink()
    [planned] = run("repair", "--dry-run", "--json").records
    assert planned["lacking"] == ["main"] and planned["twice"] == [] and planned["problem"] is None


def test_repair_names_what_it_cannot_do(
    run: Callable[..., CommandResult], stream: AuditedStream, store: CoordinationStore
) -> None:
    stream.files()[1].unlink()
    assert run("repair", "--yes").exit_code == 0
    again = run("repair", "--yes")
    assert again.exit_code == 1 and "is being repaired; wait" in " ".join(again.out.split())
