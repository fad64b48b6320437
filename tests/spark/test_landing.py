"""A slot reads each of its shards into one file, without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.settings import read_settings, write_settings
from airflow_provider_coordination.sources.kinesis import fan_out
from airflow_provider_coordination.sources.kinesis.aggregation import HashKeyRange
from airflow_provider_coordination.sources.kinesis.batch_reading import BatchStart, ShardPage
from airflow_provider_coordination.sources.kinesis.client import (
    AccessDeniedError,
    KinesisUnavailableError,
    ShardNotFoundError,
)
from airflow_provider_coordination.sources.kinesis.pacing import RecentReads
from airflow_provider_coordination.sources.kinesis.positions import at_timestamp
from airflow_provider_coordination.sources.kinesis.progress import ShardRange
from airflow_provider_coordination.sources.kinesis.records import KinesisRecord
from airflow_provider_coordination.sources.landed import Failure
from airflow_provider_coordination.spark.kinesis import landing
from airflow_provider_coordination.spark.kinesis.landed_shard import ShardLandingOptions, ShardReadPlan
from airflow_provider_coordination.spark.kinesis.landing import LandedShardRow, land_shard
from airflow_provider_coordination.spark.landed_identity import token_of
from airflow_provider_coordination.spark.slots import distribute
from tests.support.aggregation import aggregate
from tests.support.clock import ManualClock
from tests.support.kinesis_server.clock import VirtualClock
from tests.support.kinesis_server.engine import Engine
from tests.support.kinesis_server.errors import ApiError
from tests.support.kinesis_server.in_process import InProcessClient
from tests.support.kinesis_server.limits import Limits

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
CLIENT: Any = None
"""Nothing is asked of it where pages are given."""
PLAN = ShardReadPlan(
    source_identifier="clicks|PARTITION",
    partition_key="s:1:shardId-000000000000",
    fencing_token=7,
    stream="s",
    shard_id="shardId-000000000000",
    start=BatchStart(position="TRIM_HORIZON"),
)


def options(root: Path, **changes: Any) -> ShardLandingOptions:
    return ShardLandingOptions(
        kinesis=AwsSettings(region="eu-west-1"),
        root=str(root),
        **{"seconds": 10.0, "max_bytes": 1000, "slot_memory_bytes": 2**29, **changes},
    )


def a_record(number: int, data: bytes = b"x", arrival: datetime = NOON) -> KinesisRecord:
    return KinesisRecord(str(number), "key", arrival, data)


def a_page(*records: KinesisRecord, behind: int | None = 0, end: bool = False, read_at: datetime = NOON) -> ShardPage:
    children = (ShardRange(shard_id="c", parent_shard_ids=("p",), starting_hash_key="0", ending_hash_key="1"),)
    return ShardPage(
        records=list(records),
        millis_behind_latest=behind,
        end_of_shard=end,
        children=children if end else (),
        read_at=read_at,
    )


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> list[ShardPage | Exception]:
    """What the shard gives, page by page; the edge to the network is the only thing replaced."""
    given: list[ShardPage | Exception] = []

    def read(*arguments: object, **options: object) -> Iterator[ShardPage]:
        for page in given:
            if isinstance(page, Exception):
                raise page
            yield page
        raise AssertionError("it read on although it should have stopped")

    monkeypatch.setattr(fan_out, "read_shard", read)
    return given


def rows(landed: LandedShardRow) -> list[dict[str, Any]]:
    table: list[dict[str, Any]] = pq.read_table(landed.file).to_pylist()
    return table


def test_records_land_in_one_file_with_documented_columns(tmp_path: Path, pages: list[Any]) -> None:
    pages += [a_page(a_record(10, b"one"), a_record(11, b"two"), behind=5), a_page()]
    landed = land_shard(CLIENT, options(tmp_path), PLAN)
    assert (landed.start, landed.end, landed.records, landed.bytes) == ("TRIM_HORIZON", "11", 2, 6)
    assert rows(landed)[0] == {
        "stream": "s",
        "shard_id": "shardId-000000000000",
        "sequence_number": "10",
        "sub_sequence_number": 0,
        "partition_key": "key",
        "approximate_arrival_timestamp": NOON,
        "data": b"one",
        "_batch_id": landed.batch_id,
    }
    assert landed.is_batch and not landed.is_last and landed.error is None


def test_landing_in_shared_slots_ends_at_the_newest_record(tmp_path: Path, pages: list[Any]) -> None:
    pages += [a_page(a_record(10), behind=5), a_page(behind=5), a_page(a_record(11))]
    landed = land_shard(CLIENT, options(tmp_path, ends_at_newest=True), PLAN)
    assert (landed.end, landed.records, landed.read_until) == ("11", 2, NOON)


def test_aggregated_records_are_distinguished_by_sub_sequence_number(tmp_path: Path, pages: list[Any]) -> None:
    pages += [a_page(a_record(10, aggregate([("a", b"1"), ("b", b"2")])), a_record(11, b"plain")), a_page()]
    found = rows(land_shard(CLIENT, options(tmp_path), PLAN))
    assert [(r["sequence_number"], r["sub_sequence_number"], r["partition_key"], r["data"]) for r in found] == [
        ("10", 0, "a", b"1"),
        ("10", 1, "b", b"2"),
        ("11", 0, "key", b"plain"),
    ]


def test_row_has_arrival_of_first_and_last_record(tmp_path: Path, pages: list[Any]) -> None:
    pages += [a_page(a_record(10), a_record(11, arrival=NOON + timedelta(seconds=3)), behind=5)]
    pages += [a_page(a_record(12, arrival=NOON + timedelta(seconds=7)), behind=1), a_page()]
    landed = land_shard(CLIENT, options(tmp_path), PLAN)
    assert (landed.first_arrival, landed.last_arrival) == (NOON, NOON + timedelta(seconds=7))
    assert landed.batch(7).first_arrival == NOON


def test_file_name_has_range_start_and_fencing_token(tmp_path: Path, pages: list[Any]) -> None:
    pages += [a_page(a_record(10)), a_page()]
    landed = land_shard(CLIENT, options(tmp_path), PLAN)
    assert Path(landed.file).name.startswith("TRIM_HORIZON.7.")
    assert token_of(landed.file) == 7


def test_second_attempt_writes_its_own_file_and_batch(tmp_path: Path, pages: list[Any]) -> None:
    pages += [a_page(a_record(10)), a_page()]
    one, other = (land_shard(CLIENT, options(tmp_path), PLAN) for _ in range(2))
    assert one.file != other.file and one.batch_id != other.batch_id


def test_empty_page_far_behind_is_skipped(tmp_path: Path, pages: list[Any]) -> None:
    pages += [a_page(behind=60_000), a_page(a_record(10), behind=0), a_page()]
    assert land_shard(CLIENT, options(tmp_path), PLAN).records == 1


def test_shard_without_new_records_gives_no_batch(tmp_path: Path, pages: list[Any]) -> None:
    pages += [a_page(read_at=NOON)]
    landed = land_shard(CLIENT, options(tmp_path), PLAN)
    assert not landed.is_batch and landed.file == ""
    assert landed.read_until == NOON
    assert list(tmp_path.iterdir()) == []


def test_reading_stops_at_enough_bytes_after_a_whole_page(tmp_path: Path, pages: list[Any]) -> None:
    pages += [a_page(a_record(10, b"x" * 600), a_record(11, b"x" * 600), behind=9)]
    landed = land_shard(CLIENT, options(tmp_path, max_bytes=1000), PLAN)
    assert (landed.records, landed.end) == (2, "11")
    assert landed.read_until == NOON


def test_reading_stops_when_its_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()

    def slowly(*arguments: object, **options: object) -> Iterator[ShardPage]:
        for number in range(10, 13):
            clock.advance(6)
            yield a_page(a_record(number), behind=9)
        raise AssertionError("it read on although its time was over")

    monkeypatch.setattr(fan_out, "read_shard", slowly)
    landed = land_shard(CLIENT, options(tmp_path), PLAN, clock=clock)
    assert (landed.records, landed.seconds) == (2, 12)


def test_last_page_may_have_records_and_the_end(tmp_path: Path, pages: list[Any]) -> None:
    pages += [a_page(a_record(10), end=True)]
    landed = land_shard(CLIENT, options(tmp_path), PLAN)
    assert landed.is_last and landed.records == 1
    assert [child.shard_id for child in landed.children] == ["c"]


def test_shard_ending_without_records_is_a_batch(tmp_path: Path, pages: list[Any]) -> None:
    pages += [a_page(end=True)]
    landed = land_shard(CLIENT, options(tmp_path), PLAN)
    assert landed.is_batch and landed.start == landed.end and landed.file == ""


@pytest.mark.parametrize(
    ("error", "is_temporary"), [(KinesisUnavailableError("throttled"), True), (AccessDeniedError("denied"), False)]
)
def test_manifest_reports_an_error_and_nothing_else(
    tmp_path: Path, pages: list[Any], error: Exception, is_temporary: bool
) -> None:
    pages += [a_page(behind=9), error]
    landed = land_shard(CLIENT, options(tmp_path), PLAN)
    failure = Failure(type(error).__name__, is_of_source=True)
    assert landed == LandedShardRow.without_records(
        PLAN.partition_key, error=str(error), is_temporary=is_temporary, failure=failure
    )


@pytest.mark.parametrize(
    "error", [KinesisUnavailableError("away"), ShardNotFoundError("gone"), AccessDeniedError("no")]
)
def test_records_before_an_error_are_landed(tmp_path: Path, pages: list[Any], error: Exception) -> None:
    pages += [a_page(a_record(10), behind=9), error]
    landed = land_shard(CLIENT, options(tmp_path), PLAN)
    assert (landed.error, landed.records, landed.end, landed.is_last) == (None, 1, "10", False)


def test_manifest_reports_an_unwritable_folder(tmp_path: Path, pages: list[Any]) -> None:
    (tmp_path / "file").write_text("")
    pages += [a_page(a_record(10)), a_page()]
    landed = land_shard(CLIENT, options(tmp_path / "file"), PLAN)
    assert landed.error is not None and "landing in" in landed.error


def test_manifest_row_survives_spark(tmp_path: Path, pages: list[Any]) -> None:
    pages += [a_page(a_record(10, arrival=NOON - timedelta(seconds=1)), end=True)]
    landed = land_shard(CLIENT, options(tmp_path), PLAN)
    assert read_settings(LandedShardRow, "row", json.loads(json.dumps(write_settings(landed)))) == landed


@pytest.mark.parametrize(("shards", "slots", "sizes"), [(5, 2, [3, 2]), (2, 8, [1, 1]), (1, 1, [1]), (6, 3, [2, 2, 2])])
def test_shards_are_dealt_evenly_without_empty_slots(shards: int, slots: int, sizes: Sequence[int]) -> None:
    assert [len(slot) for slot in distribute([PLAN] * shards, slots, landing._size)] == sizes


def test_shards_are_dealt_by_their_recent_throughput() -> None:
    plans = [replace(PLAN, throughput=given) for given in (1e6, 0.0, 4e5, 7e5, None, 1e6)]
    assert [[plan.throughput for plan in slot] for slot in distribute(plans, 2, landing._size)] == [
        [None, 4e5, 0.0],
        [1e6, 1e6, 7e5],
    ]


# Against the service


class Service:
    """A stream of one shard, and what a slot makes of it."""

    def __init__(self, root: Path) -> None:
        self.clock = VirtualClock(NOON)
        self.engine = Engine(self.clock)
        self.client = InProcessClient(self.engine)
        self.root = root
        self.client.create_stream(StreamName="s", ShardCount=1)

    def put(self, *data: bytes) -> list[str]:
        put = self.client.put_record
        return [put(StreamName="s", Data=d, PartitionKey="k", ExplicitHashKey="0")["SequenceNumber"] for d in data]

    def land(
        self, start: str = "TRIM_HORIZON", *, plan: dict[str, Any] | None = None, **changes: Any
    ) -> LandedShardRow:
        plan = dict(plan or {})
        since = plan.pop("delivered_until", None)
        begin = BatchStart(position=start, retention=timedelta(days=1), delivered_until=since)
        read = replace(PLAN, start=begin, **plan)
        changed = options(self.root, **{"max_bytes": 2**30, **changes})
        return land_shard(self.client, changed, read, clock=self.clock, sleep=self.clock.sleep)

    def subscribed(self) -> dict[str, Any]:
        arn = self.client.describe_stream_summary(StreamName="s")["StreamDescriptionSummary"]["StreamARN"]
        consumer = self.client.register_stream_consumer(StreamARN=arn, ConsumerName="c")["Consumer"]
        return {"consumer_arn": consumer["ConsumerARN"]}


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return Service(tmp_path)


def payloads(landed: LandedShardRow) -> list[bytes]:
    return [row["data"] for row in rows(landed)] if landed.file else []


def test_consumer_receives_the_records_that_polling_reads(service: Service) -> None:
    service.put(b"1", aggregate([("a", b"2"), ("b", b"3")]))
    polled = service.land()
    sent = service.land(plan=service.subscribed())
    assert [{**row, "_batch_id": ""} for row in rows(sent)] == [{**row, "_batch_id": ""} for row in rows(polled)]
    by_chance = ("batch_id", "file", "file_bytes", "seconds", "read_until", "next_iterator", "recent_reads")
    assert replace(sent, **{name: getattr(polled, name) for name in by_chance}) == polled
    assert service.engine.stream("s").consumers["c"].subscriptions == {}


def test_user_records_of_another_shard_are_filtered_and_counted(service: Service) -> None:
    data = aggregate([("a", b"1"), ("b", b"2"), ("c", b"3")], ["0", str(2**127), "1"])
    service.put(data, b"plain")
    lower = {"hash_keys": HashKeyRange(0, 2**127 - 1)}
    landed = service.land(plan=lower)
    assert [(row["sub_sequence_number"], row["data"]) for row in rows(landed)] == [(0, b"1"), (2, b"3"), (0, b"plain")]
    assert (landed.records, landed.filtered) == (3, 1)
    everything = service.land(plan=lower, filter_by_hash_range=False)
    assert (payloads(everything), everything.filtered) == ([b"1", b"2", b"3", b"plain"], 0)


def test_foreign_aggregate_moves_the_position_without_a_file(service: Service) -> None:
    [number] = service.put(aggregate([("a", b"1")], [str(2**127)]))
    landed = service.land(plan={"hash_keys": HashKeyRange(0, 5)})
    assert (landed.is_batch, landed.file, landed.end, landed.filtered) == (True, "", number, 1)
    assert (landed.first_arrival, landed.last_arrival) == (None, None)


def test_position_inside_an_aggregate_resumes_at_the_next_user_record(service: Service) -> None:
    packed = aggregate([("a", b"1"), ("b", b"2"), ("c", b"3")])
    one, _, three = service.put(packed, b"x", packed)
    landed = service.land(f"{one}:1")
    assert [(row["sub_sequence_number"], row["data"]) for row in rows(landed)][:3] == [(2, b"3"), (0, b"x"), (0, b"1")]
    assert service.land(f"{one}:2").records == 4
    assert service.land(f"{one}:7").records == 4
    assert payloads(service.land(f"{three}:1")) == [b"3"]
    # The last user record of all: the position still moves, so that it is not read forever.
    last = service.land(f"{three}:2")
    assert (last.is_batch, last.end, last.file) == (True, three, "")


def test_plain_record_is_its_only_user_record(service: Service) -> None:
    number, _ = service.put(b"1", b"2")
    assert payloads(service.land(f"{number}:0")) == [b"2"]


def test_trimmed_checkpoint_is_a_gap_and_lands_nothing(service: Service) -> None:
    [first] = service.put(b"1")
    since = service.clock.now()
    service.clock.advance(3600)
    service.put(b"lost")
    service.clock.advance(86_400 - 1800)
    [later] = service.put(b"2")
    service.clock.advance(1801)

    landed = service.land(first, plan={"delivered_until": since})

    assert landed.gap is not None and landed.error is not None
    assert (landed.gap.after, landed.gap.before, landed.gap.since) == (first, later, since)
    assert (landed.is_batch, landed.file, landed.is_temporary) == (False, "", False)
    for part in ("stream 's'", "shard 'shardId-000000000000'", first, later, "airflow-coordination reset"):
        assert part in landed.error
    assert list(service.root.rglob("*.parquet")) == []


def test_reading_resumes_behind_a_permitted_gap(service: Service) -> None:
    [first] = service.put(b"1")
    since = service.clock.now()
    service.clock.advance(2 * 86_400)
    [later] = service.put(b"2")
    landed = service.land(first, plan={"delivered_until": since}, on_data_loss="earliest")
    assert landed.gap is not None and landed.gap.before == later
    assert (landed.start, landed.end, payloads(landed)) == (first, later, [b"2"])


def test_checkpoint_within_retention_is_no_gap(service: Service) -> None:
    service.client.increase_stream_retention_period(StreamName="s", RetentionPeriodHours=168)
    first, _ = service.put(b"1", b"2")
    since = service.clock.now()
    service.clock.advance(2 * 86_400)
    landed = service.land(first, plan={"delivered_until": since})
    assert (payloads(landed), landed.gap, landed.error) == ([b"2"], None, None)


def test_idle_but_polled_stream_is_no_gap(service: Service) -> None:
    [first] = service.put(b"1")
    service.clock.advance(3 * 86_400)
    looked_at = service.clock.now()
    service.clock.advance(60)
    service.put(b"2")
    landed = service.land(first, plan={"delivered_until": looked_at})
    assert (payloads(landed), landed.gap) == ([b"2"], None)


def test_child_unread_within_retention_is_a_gap(service: Service) -> None:
    since = service.clock.now()
    service.clock.advance(2 * 86_400)
    assert service.land(plan={"delivered_until": since}).gap is not None
    assert service.land(plan={"delivered_until": service.clock.now()}).gap is None
    assert service.land().gap is None


def test_shard_gone_unread_is_a_gap_without_an_end(service: Service) -> None:
    [number] = service.put(b"1")
    service.client.split_shard(StreamName="s", ShardToSplit=PLAN.shard_id, NewStartingHashKey=str(2**127))
    service.engine.expire_shard("s", PLAN.shard_id)
    since = service.clock.now() - timedelta(days=2)
    for policy in ("fail", "earliest"):
        landed = service.land(number, plan={"delivered_until": since}, on_data_loss=policy)
        assert landed.gap is not None and landed.error is not None
        assert (landed.gap.after, landed.gap.before, landed.gap.since) == (number, None, since)
        assert not landed.is_temporary and "shard sync" in landed.error


def test_checkpoint_of_another_stream_is_refused(service: Service) -> None:
    service.client.create_stream(StreamName="other", ShardCount=2)
    number = service.client.put_record(
        StreamName="other", Data=b"x", PartitionKey="k", ExplicitHashKey=str(2**128 - 1)
    )["SequenceNumber"]
    landed = service.land(number, plan={"delivered_until": service.clock.now()})
    assert landed.error is not None and "stream 's' shard 'shardId-000000000000'" in landed.error
    assert "region or account has changed" in landed.error
    assert (landed.gap, landed.is_temporary) == (None, False)


def test_empty_closed_shard_ends_from_any_instant(service: Service) -> None:
    service.client.split_shard(StreamName="s", ShardToSplit=PLAN.shard_id, NewStartingHashKey=str(2**127))
    service.clock.advance(60)
    for start in ("TRIM_HORIZON", at_timestamp(service.clock.now())):
        landed = service.land(start)
        assert (landed.is_batch, landed.is_last, landed.end, landed.file) == (True, True, start, "")
        assert len(landed.children) == 2


@pytest.mark.parametrize("fan_out", [False, True], ids=["polling", "fan-out"])
def test_stop_is_exact_and_repeatable(service: Service, fan_out: bool) -> None:
    service.put(b"1")
    service.clock.advance(10)
    service.put(b"2")
    stop = service.clock.now()
    service.put(b"3")
    service.clock.advance(10)
    service.put(b"4")
    plan = service.subscribed() if fan_out else {}
    one = service.land(plan=plan, stop_at=stop)
    service.clock.advance(10)
    other = service.land(plan=plan, stop_at=stop)
    assert payloads(one) == payloads(other) == [b"1"]
    assert (one.start, one.end, one.at_stop) == (other.start, other.end, True)
    rest = service.land(
        one.end, plan={**plan, "delivered_until": stop}, stop_at=service.clock.now() - timedelta(seconds=5)
    )
    assert (payloads(rest), rest.at_stop) == ([b"2", b"3", b"4"], True)


def test_future_stop_is_reached_once_it_has_passed(service: Service) -> None:
    service.put(b"1")
    stop = service.clock.now() + timedelta(minutes=1)
    early = service.land(stop_at=stop)
    assert (payloads(early), early.at_stop) == ([b"1"], False)
    service.clock.advance(65)
    late = service.land(early.end, plan={"delivered_until": stop}, stop_at=stop)
    assert (late.is_batch, late.at_stop, late.read_until) == (False, True, stop)


def test_shard_starting_at_the_stop_is_not_read(service: Service) -> None:
    stop = service.clock.now()
    service.put(b"1")
    landed = service.land(at_timestamp(stop), stop_at=stop)
    assert (landed.at_stop, landed.is_batch, service.engine.calls["GetRecords"]) == (True, False, 0)


def test_full_speed_reading_is_not_throttled(service: Service) -> None:
    service.put(*[b"x" * (2**20 - 1)] * 24)
    service.engine.limits = Limits.real()
    landed = service.land(seconds=60.0)
    assert (landed.records, landed.throttled) == (24, 0)
    assert 10 <= landed.seconds <= 16


def test_two_jobs_share_a_shard_by_their_rates(service: Service) -> None:
    service.engine.limits = Limits.real()
    rounds: list[RecentReads] = [(), ()]
    for number in range(60):
        service.put(b"x")
        landed = service.land(seconds=2.0, plan={"recent_reads": rounds[number % 2]}, reads_per_second=2)
        rounds[number % 2] = landed.recent_reads
        assert landed.throttled == 0
    assert service.engine.calls["GetRecords"] <= 60 * 2


def test_slow_rate_ends_a_round_early(service: Service) -> None:
    service.put(*[b"x"] * 30)
    landed = service.land(seconds=10.0, reads_per_second=0.15, records_per_read=10)
    assert (landed.records, service.engine.calls["GetRecords"]) == (20, 2)
    assert landed.seconds < 10


def test_read_returns_the_given_number_of_records(service: Service) -> None:
    service.put(*[b"x"] * 25)
    landed = service.land(records_per_read=10)
    assert (landed.records, service.engine.calls["GetRecords"]) == (25, 4)


def test_short_rounds_keep_the_remaining_budget(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[ApiError] = []
    call = Engine.call

    def watched(engine: Engine, operation: str, request: Any) -> Any:
        try:
            return call(engine, operation, request)
        except ApiError as error:
            refused.append(error)
            raise

    monkeypatch.setattr(Engine, "call", watched)
    service.put(*[b"x" * (2**20 - 1)] * 24)
    service.engine.limits = Limits.real()
    start, begun, read = "TRIM_HORIZON", service.clock.monotonic(), 0
    recent_reads: RecentReads = ()
    while read < 24:
        landed = service.land(start, seconds=2.0, plan={"recent_reads": recent_reads})
        start, recent_reads, read = landed.end, landed.recent_reads, read + landed.records
    assert refused == []
    assert 10 <= service.clock.monotonic() - begun <= 20


def test_shard_reports_a_budget_used_up_by_others(service: Service) -> None:
    service.put(b"1")
    service.engine.faults.throttle("GetRecords", times=None)
    landed = service.land(seconds=60.0)
    assert (landed.error, landed.is_batch, landed.read_until) == (None, False, None)
    assert landed.throttled > 5
    assert landed.seconds <= 60


def test_throttled_round_returns_what_it_has(service: Service) -> None:
    service.put(*[b"x" * (2**20 - 1)] * 12)
    service.engine.faults.throttle("GetRecords", after=1, times=None)
    landed = service.land(seconds=20.0)
    assert landed.error is None and landed.records > 0


def test_round_warns_of_filtered_records_and_throttling(caplog: pytest.LogCaptureFixture) -> None:
    of_p = LandedShardRow.without_records("p", filtered=3, throttled=2)
    landing.log_warnings([of_p, LandedShardRow.without_records("q")], options(Path()))
    filtered, throttled = [record.getMessage() for record in caplog.records]
    assert "partition p: 3 user records" in filtered and "filter_by_hash_range=False" in filtered
    assert "partition p: 2 reads were throttled" in throttled and "consumer_name" in throttled


@pytest.mark.parametrize(
    "harm",
    [
        lambda faults: faults.reset("GetRecords", times=3),
        lambda faults: faults.lose_answer("GetRecords", times=3),
        lambda faults: faults.fail("GetRecords", times=3),
        lambda faults: faults.fail("GetShardIterator", times=3),
        lambda faults: faults.expire_iterator(times=3),
        lambda faults: faults.slow("GetRecords", 2, times=1),
    ],
    ids=["reset", "answer lost", "failed", "no iterator", "expired", "slow"],
)
def test_transient_errors_are_retried(service: Service, harm: Any) -> None:
    service.put(b"1", b"2")
    harm(service.engine.faults)
    landed = service.land(seconds=30.0)
    assert (payloads(landed), landed.error) == ([b"1", b"2"], None)


@pytest.mark.parametrize("harm", [lambda faults: faults.deny("GetRecords"), lambda faults: faults.kms()])
def test_denied_shard_fails_alone(service: Service, harm: Any) -> None:
    service.put(b"1")
    harm(service.engine.faults)
    landed = service.land()
    assert landed.error is not None and "access denied" in landed.error and not landed.is_temporary
    assert payloads(service.land()) == [b"1"]


class AheadClock(VirtualClock):
    """A job's clock that is ten minutes ahead of the service's."""

    def __init__(self, of: VirtualClock) -> None:
        super().__init__(of.now() + timedelta(minutes=10))
        self._of = of

    def now(self) -> datetime:
        return self._of.now() + timedelta(minutes=10)

    def monotonic(self) -> float:
        return self._of.monotonic()


@pytest.mark.parametrize("is_subscribed", [False, True], ids=["polled", "subscribed"])
def test_clock_that_is_ahead_does_not_move_what_is_read(service: Service, is_subscribed: bool) -> None:
    service.put(b"1")
    service.clock.advance(60)
    plan = service.subscribed() if is_subscribed else {}
    read = replace(PLAN, **plan)
    clock = AheadClock(service.clock)
    landed = land_shard(service.client, options(service.root), read, clock=clock, sleep=service.clock.sleep)
    assert landed.records == 1 and landed.read_until is not None
    assert landed.read_until <= service.clock.now()


def test_batches_end_with_the_hour_of_their_first_record(service: Service) -> None:
    service.put(b"1", b"2")
    service.clock.advance(3600)
    service.put(b"3")
    first = service.land(completes=timedelta(hours=1))
    second = service.land(first.end, completes=timedelta(hours=1))
    assert [payloads(each) for each in (first, second)] == [[b"1", b"2"], [b"3"]]
    assert first.read_until == NOON and second.read_until is not None and second.read_until > NOON
