"""The calls of Kinesis, made of those of DynamoDB Streams."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.dynamodb_streams.client import EMPTY_PAGES, StreamOffError, created_at
from airflow_provider_coordination.sources.kinesis.batch_reading import ShardPage
from airflow_provider_coordination.sources.kinesis.client import (
    KinesisUnavailableError,
    StreamNotFoundError,
    StreamNotReadyError,
)
from airflow_provider_coordination.sources.kinesis.pacing import RetryBudget
from airflow_provider_coordination.sources.kinesis.positions import at_timestamp
from airflow_provider_coordination.sources.kinesis.reader import read_shard
from airflow_provider_coordination.sources.kinesis.records import COLUMNS
from airflow_provider_coordination.sources.kinesis.shards import describe_stream, list_shards, open_shards
from tests.support.dynamodb_streams import DynamoDbStreams, client_of, events_of, strings

TABLE = "orders"
TABLE_ARN = f"arn:aws:dynamodb:eu-west-1:123456789012:table/{TABLE}"


def put(service: DynamoDbStreams, *events: str, key: str = "a") -> None:
    for event in events:
        service.put(TABLE, strings(id=key, event=event))


def shard_of(service: DynamoDbStreams) -> str:
    """Return the shard that has changes."""
    return next(shard.shard_id for shard in service.stream_of(TABLE).shards.values() if shard.changes)


def read(
    service: DynamoDbStreams,
    start: str = "TRIM_HORIZON",
    *,
    shard: str | None = None,
    table: str = TABLE,
    **options: Any,
) -> list[ShardPage]:
    retry = RetryBudget(until=service.clock.monotonic() + 20, clock=service.clock, sleep=service.clock.sleep)
    arn = service.stream_of(table).arn
    return list(read_shard(client_of(service), arn, shard or shard_of(service), start, retry=retry, **options))


def events(pages: list[ShardPage]) -> list[str]:
    return events_of([str(record.data) for page in pages for record in page.records])


# Streams


@pytest.mark.parametrize("name", [TABLE, TABLE_ARN])
def test_table_is_described_by_its_present_stream(service: DynamoDbStreams, name: str) -> None:
    described = describe_stream(client_of(service), name)
    arn = service.stream_of(TABLE).arn
    assert (described.name, described.arn, described.address) == (TABLE, arn, arn)
    assert described.created_at == created_at(arn).replace(microsecond=0)
    assert (described.kind, described.retention, described.ended) == ("dynamodb_streams", timedelta(hours=24), None)


def test_earlier_streams_are_found_while_they_can_be_read(service: DynamoDbStreams) -> None:
    earlier = service.stream_of(TABLE).arn
    service.disable(TABLE)
    service.clock.advance(3600)
    service.enable(TABLE)
    epoch = int(created_at(earlier).timestamp())
    assert describe_stream(client_of(service), TABLE).earlier == {epoch: earlier}
    service.clock.advance(24 * 3600)
    assert describe_stream(client_of(service), TABLE).earlier == {}


def test_table_without_stream_names_the_command(service: DynamoDbStreams) -> None:
    service.create_table("quiet", view=None)
    command = "aws dynamodb update-table --table-name quiet --stream-specification StreamEnabled=true"
    with pytest.raises(StreamOffError, match=command):
        describe_stream(client_of(service), "quiet")
    with pytest.raises(StreamNotFoundError, match="table 'nothing' does not exist in region"):
        describe_stream(client_of(service), "nothing")


def test_stream_disabled_for_a_day_is_off(service: DynamoDbStreams) -> None:
    service.disable(TABLE)
    described = describe_stream(client_of(service), TABLE)
    assert described.ended is not None and "update-table --table-name orders" in described.ended
    service.clock.advance(25 * 3600)
    with pytest.raises(StreamOffError):
        describe_stream(client_of(service), TABLE)


def test_stream_of_a_deleted_table_can_be_read(service: DynamoDbStreams) -> None:
    arn = service.stream_of(TABLE).arn
    service.delete_table(TABLE)
    assert describe_stream(client_of(service), TABLE).arn == arn


def test_stream_before_a_restore_can_be_read(service: DynamoDbStreams) -> None:
    arn = service.stream_of(TABLE).arn
    service.delete_table(TABLE)
    service.create_table(TABLE, view=None)
    described = describe_stream(client_of(service), TABLE)
    assert described.arn == arn and described.ended is not None
    service.clock.advance(25 * 3600)
    with pytest.raises(StreamOffError, match="update-table --table-name orders"):
        describe_stream(client_of(service), TABLE)


@pytest.mark.parametrize(
    ("has", "needs", "missing"),
    [("KEYS_ONLY", "NEW_IMAGE", "new"), ("NEW_IMAGE", "NEW_AND_OLD_IMAGES", "old"), ("KEYS_ONLY", "OLD_IMAGE", "old")],
)
def test_view_without_needed_images_is_refused(service: DynamoDbStreams, has: str, needs: str, missing: str) -> None:
    service.create_table("other", view=has)
    with pytest.raises(ConfigurationError, match=f"without {missing} images.*StreamViewType={needs}"):
        describe_stream(client_of(service, needs), "other")
    assert describe_stream(client_of(service, "KEYS_ONLY"), "other").name == "other"


def test_stream_being_enabled_is_waited_for(service: DynamoDbStreams) -> None:
    client = client_of(service)
    answer = client._streams.describe_stream
    client._streams.describe_stream = lambda **request: {
        "StreamDescription": {**answer(**request)["StreamDescription"], "StreamStatus": "ENABLING"}
    }
    with pytest.raises(StreamNotReadyError, match="CREATING"):
        describe_stream(client, TABLE, ready_within_seconds=3, clock=service.clock, sleep=service.clock.sleep)


# Shards


def test_listing_pages_through_thousands_of_shards(service: DynamoDbStreams) -> None:
    service.create_table("large", shards=256)
    for _ in range(4):
        service.roll("large")
    arn = service.stream_of("large").arn
    service.refusals.append(("describe_stream", "LimitExceededException"))
    shards = list_shards(client_of(service), arn)
    assert len({shard.shard_id for shard in shards}) == 5 * 256
    assert all(len(shard.parent_shard_ids) == (index >= 256) for index, shard in enumerate(shards))
    assert open_shards(client_of(service), "large") == 256


@pytest.mark.parametrize(
    ("kind", "generation"), [("AT_LATEST", 2), ("AT_TRIM_HORIZON", 0), ("AT_TIMESTAMP", 0), ("FROM_TRIM_HORIZON", 0)]
)
def test_shards_of_an_instant_follow_from_their_lineage(service: DynamoDbStreams, kind: str, generation: int) -> None:
    service.roll(TABLE)
    service.roll(TABLE, split=True)
    names = list(service.stream_of(TABLE).shards)
    generations = (names[:2], names[2:4], names[4:])
    listed = list_shards(client_of(service), service.stream_of(TABLE).arn, shard_filter={"Type": kind})
    assert [shard.shard_id for shard in listed] == generations[generation]


def test_closed_shard_without_listed_child_counts_as_latest(service: DynamoDbStreams) -> None:
    service.listing_delay_seconds = 60
    service.clock.advance(60)
    names = list(service.stream_of(TABLE).shards)
    service.roll(TABLE)
    listed = list_shards(client_of(service), service.stream_of(TABLE).arn, shard_filter={"Type": "AT_LATEST"})
    assert [shard.shard_id for shard in listed] == names


# Records


def test_pages_end_with_the_children_of_the_shard(service: DynamoDbStreams) -> None:
    put(service, "1", "2")
    name = shard_of(service)
    service.roll(TABLE, split=True)
    pages = read(service, shard=name)
    children = [shard.shard_id for shard in service.stream_of(TABLE).shards.values() if shard.parent == name]
    assert events(pages) == ["1", "2"] and pages[-1].end_of_shard
    assert [(child.shard_id, child.parent_shard_ids, child.hash_keys) for child in pages[-1].children] == [
        (child, (name,), None) for child in children
    ]


def test_page_holds_a_thousand_records_and_a_megabyte(service: DynamoDbStreams) -> None:
    put(service, *map(str, range(1500)))
    assert [len(page.records) for page in read(service)[:2]] == [1000, 500]
    service.create_table("large", shards=1)
    for number in range(5):
        service.put("large", strings(id="a", event=str(number), text="x" * 300_000))
    [large] = service.stream_of("large").shards
    pages = read(service, table="large", shard=large)
    assert [len(page.records) for page in pages if page.records] == [2, 1, 1, 1]


def test_instant_within_a_second_starts_with_the_second(service: DynamoDbStreams) -> None:
    put(service, "before")
    service.clock.advance(3.2)
    started = service.clock.now()
    service.clock.advance(0.5)
    put(service, "after")
    assert events(read(service, at_timestamp(started))) == ["after"]


def test_few_empty_pages_are_not_the_end(service: DynamoDbStreams) -> None:
    put(service, "1")
    service.empty_pages = EMPTY_PAGES - 1
    pages = read(service)
    assert events(pages) == ["1"]
    first = next(index for index, page in enumerate(pages) if page.records)
    assert not any(page.is_drained for page in pages[:first]) and pages[-1].is_drained


def test_expired_iterator_is_replaced_after_the_last_record(service: DynamoDbStreams) -> None:
    put(service, "1")
    pages = read_shard(client_of(service), service.stream_of(TABLE).arn, shard_of(service), "TRIM_HORIZON",
                       retry=RetryBudget(clock=service.clock, sleep=service.clock.sleep))  # fmt: skip
    assert events([next(pages)]) == ["1"]
    service.clock.advance(3600)
    put(service, "2")
    assert events([next(pages)]) == ["2"]


@pytest.mark.parametrize("code", ["LimitExceededException", "ThrottlingException"])
def test_throttled_reads_are_repeated_and_counted(service: DynamoDbStreams, code: str) -> None:
    put(service, "1")
    service.refusals += [("get_records", code)] * 3
    assert events(read(service)) == ["1"]
    assert service.calls["get_records"] > 4


def test_outage_while_children_are_listed_repeats_the_page(service: DynamoDbStreams) -> None:
    put(service, "1")
    name = shard_of(service)
    service.roll(TABLE)
    service.refusals += [("describe_stream", "InternalServerError")]
    pages = read(service, shard=name)
    assert events(pages) == ["1"] and len(pages[-1].children) == 1


def test_trimmed_position_reads_on_with_what_is_left(service: DynamoDbStreams) -> None:
    put(service, "1", "2")
    name, number = shard_of(service), service.stream_of(TABLE).shards[shard_of(service)].changes[0].number
    service.clock.advance(24 * 3600 + 1)
    put(service, "3")
    assert events(read(service, str(number), shard=name, inclusive=True)) == ["3"]


def test_garbled_response_is_an_outage(service: DynamoDbStreams) -> None:
    put(service, "1", "2")
    shard = service.stream_of(TABLE).shards[shard_of(service)]
    shard.changes.reverse()
    with pytest.raises(KinesisUnavailableError, match="out of order"):
        read(service)


@pytest.mark.parametrize("named", [{"StreamName": "orders"}, {"StreamARN": TABLE_ARN}])
def test_shards_of_a_named_table_are_those_of_its_stream(service: DynamoDbStreams, named: Any) -> None:
    put(service, "1")
    client, shard = client_of(service), shard_of(service)
    assert shard in [each["ShardId"] for each in client.list_shards(**named)["Shards"]]
    iterator = client.get_shard_iterator(**named, ShardId=shard, ShardIteratorType="TRIM_HORIZON")["ShardIterator"]
    assert len(client.get_records(ShardIterator=iterator)[COLUMNS]) == 1
