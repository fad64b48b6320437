"""The examples of the manual, run in order on the store that they describe."""

from __future__ import annotations

import re
import shlex
from datetime import timedelta
from pathlib import Path

from airflow_provider_coordination.coordination.acknowledgment import FAMILY, AcknowledgmentSet, item_of
from airflow_provider_coordination.coordination.partition import PARKED_UNTIL
from airflow_provider_coordination.coordination.source_claim import DeliveryClaim, SourceClaim, claim
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress
from tests.cli.conftest import Clicks, Shell

PAGE = Path(__file__).resolve().parents[2] / "docs" / "commands.md"
OWNER = "etl-1:clicks_to_parquet:daily-31:ingest:0:1:e5350be7"


def example_store(clicks: Clicks) -> None:
    """Make a source of five shards, done, in use, parked, waiting and resting; two sets; and a claim."""

    def key(number: int) -> str:
        return f"clicks:1767268800:shardId-{number:012}"

    for number in range(5):
        progress = ShardProgress(
            stream="clicks",
            shard_id=f"shardId-{number:012}",
            parent_shard_ids=(),
            starting_hash_key="0",
            ending_hash_key="340282366920938463463374607431768211455",
            checkpoint="49590338271490256608559692538361571095921575989136588898",
        )
        clicks.a.create_partitions({key(number): progress.to_mapping()})
    now = clicks.clock.now()
    done, used, parked, _, resting = (clicks[key(number)] for number in range(5))
    error = "the transform or its write failed: KeyError: 'user_id'"
    leased = used.acquired(OWNER, now + timedelta(minutes=2))
    rests = resting.failed(error).failed(error).failed(error).closed(now + timedelta(minutes=4))
    clicks.store.transact(update=[done.completed(now), leased, parked.failed(error).resting(PARKED_UNTIL), rests])
    clicks.owner("b").supply(lambda state: [])
    pending, rejected = (
        AcknowledgmentSet(
            set_id=f"{batch_id}.{end}",
            partition_key=key(number),
            batch_id=batch_id,
            created_at=now,
            timeout=timedelta(minutes=30),
            expires_at=now + timedelta(minutes=30),
            references={"main": 0, "check": 1, "load": 1},
            added=3,
            complete=True,
            sinks=["main"],
            run="checked_clicks/manual-31",
        )
        for number, batch_id, end in (
            (1, "shardId-000000000001-5f0c1a2b3c4d5e6f7a8b", "7d859704"),
            (0, "shardId-000000000000-0a9b8c7d6e5f4a3b2c1d", "ef2c1568"),
        )
    )
    for handle, positive in (("check", True), ("load", False)):
        rejected, _ = rejected.release(
            handle, positive=positive, release_id=handle, reason="the warehouse refused it", at=now
        )
    clicks.store.create([item_of(each, clicks.a.view.family(FAMILY)) for each in (pending, rejected)])
    dag = {"dag_id": "clicks_to_parquet", "task_id": "ingest", "claimed_at": now}
    claim(clicks.a.view, SourceClaim(**dag, kind="kinesis"))
    claim(clicks.a.view, DeliveryClaim(**dag, sinks={"main": "/data/lake/clicks"}))
    clicks.clock.advance(80)


def examples() -> list[tuple[str, str]]:
    """Return each command of the manual with the output that it shows."""
    found = []
    for block in re.findall(r"^```console\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        for example in re.split(r"^\$ airflow-coordination ", block, flags=re.MULTILINE)[1:]:
            line, _, output = example.partition("\n")
            found.append((line, output.rstrip("\n")))
    return found


def test_manual_examples_show_the_output_of_the_commands(shell: Shell, clicks: Clicks) -> None:
    example_store(clicks)
    shown = [
        (line, re.sub(r'"version": \d+|^version +\d+$', "version", output, flags=re.MULTILINE))
        for line, output in examples()
    ]
    written = [
        (
            line,
            re.sub(
                r'"version": \d+|^version +\d+$',
                "version",
                shell(*shlex.split(line)).out.rstrip("\n"),
                flags=re.MULTILINE,
            ),
        )
        for line, _ in examples()
    ]
    assert shown == written
