"""The cost of extracting user records from Kinesis records, compared with other libraries.

Three things are measured in turn, as medians of the processor time of one thread:

- deaggregation, compared with `aws_kinesis_agg` of AWS Labs: the unchanged library, and with its records in the columns
  that landing needs. User records have 50 bytes, 200 bytes and 1 KiB, plus or minus a fifth, with 500 records to an
  aggregate and 50 partition keys. All are kept, or half of them are filtered out by their hash key. The digest alone,
  which both must compute, is the minimum;
- parsing pages of records that are not aggregated: with boto3 alone, and with our handler;
- damaged aggregates: how many of the user records each library returns.

Usage: python -m benchmarks.deaggregation [--quick]
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import io
import json
import os
import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from aws_kinesis_agg.deaggregator import iter_deaggregate_records

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.sources.kinesis.aggregation import (
    DIGEST_BYTES,
    MAGIC,
    HashKeyRange,
    expand,
    is_aggregated,
)
from airflow_provider_coordination.sources.kinesis.client import kinesis_client
from airflow_provider_coordination.sources.kinesis.reader import reading_client
from airflow_provider_coordination.sources.kinesis.records import COLUMNS, KinesisRecord, KinesisRecords, records_of
from airflow_provider_coordination.sources.kinesis.user_records import USER_RECORD_SCHEMA, user_records
from tests.support.aggregation import aggregate
from tests.support.aws_wire import AwsWire

SIZES = (50, 200, 1024)
USERS, KEYS = 500, 50
ARRIVAL = datetime(2026, 1, 1, tzinfo=UTC)
HALF = HashKeyRange(0, 2**127 - 1)
SETTINGS = AwsSettings(region="eu-west-1", endpoint_url="http://127.0.0.1:1", access_key_id="a", secret_access_key="b")


def page_of(size: int, aggregates: int) -> KinesisRecords:
    """Return a page of aggregates."""
    randomness = random.Random(size)
    return KinesisRecords.of(
        KinesisRecord(
            str(10**55 + number),
            "outer",
            ARRIVAL,
            aggregate(
                [
                    (f"key-{randomness.randrange(KEYS)}", os.urandom(round(size * randomness.uniform(0.8, 1.2))))
                    for _ in range(USERS)
                ]
            ),
        )
        for number in range(aggregates)
    )


def boto3_records(page: KinesisRecords) -> list[dict[str, Any]]:
    """Return the records of a page as dictionaries."""
    return [
        {
            "SequenceNumber": record.sequence_number,
            "PartitionKey": record.partition_key,
            "ApproximateArrivalTimestamp": record.approximate_arrival_timestamp,
            "Data": record.data,
        }
        for record in page
    ]


def columns_of_peer(records: Iterable[Mapping[str, Any]]) -> pa.RecordBatch:
    """Return the user records of `aws_kinesis_agg` in the columns of landing."""
    users = [record["kinesis"] for record in iter_deaggregate_records(records, data_format="Boto3")]
    names = ("sequenceNumber", "subSequenceNumber", "partitionKey", "approximateArrivalTimestamp", "data")
    arrays = [
        pa.array([user[name] for user in users], field.type)
        for name, field in zip(names, USER_RECORD_SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=USER_RECORD_SCHEMA)


def medians(ways: Mapping[str, Callable[[], object]], repetitions: int) -> dict[str, float]:
    """Return the median processor time of each way, in seconds, run in turn; the first turn warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for repetition in range(repetitions + 1):
        for name, way in ways.items():
            start = time.process_time()
            way()
            if repetition:
                seconds[name].append(time.process_time() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def deaggregation(size: int, aggregates: int, repetitions: int) -> dict[str, float]:
    """Return the microseconds for each user record, by way."""
    page = page_of(size, aggregates)
    records, aggregated = boto3_records(page), page.data.to_pylist()

    def peer() -> None:
        for _ in iter_deaggregate_records(records, data_format="Boto3"):
            pass

    ways: dict[str, Callable[[], object]] = {
        "aws_kinesis_agg": peer,
        "aws_kinesis_agg into columns": lambda: columns_of_peer(records),
        "ours, records": lambda: [expand(data, "outer") for data in aggregated],
        "ours, columns": lambda: user_records(page),
        "ours, columns, half filtered": lambda: user_records(page, HALF),
        "the digest alone": lambda: [is_aggregated(data) for data in aggregated],
    }
    users = aggregates * USERS
    return {name: seconds / users * 1e6 for name, seconds in medians(ways, repetitions).items()}


def parsing(size: int, records: int, repetitions: int) -> dict[str, float]:
    """Return the microseconds for each record of a page, from the response's bytes to columns."""
    body = {
        "Records": [
            {
                "SequenceNumber": str(10**55 + number),
                "ApproximateArrivalTimestamp": ARRIVAL.timestamp() + number / 1000,
                "Data": base64.b64encode(os.urandom(size)).decode(),
                "PartitionKey": f"key-{number}",
            }
            for number in range(records)
        ],
        "NextShardIterator": "next",
        "MillisBehindLatest": 0,
    }
    plain, fast = kinesis_client(SETTINGS), reading_client(SETTINGS)
    for client in (plain, fast):
        AwsWire(client).answer("GetRecords", body, times=repetitions + 1)

    def with_our_handler() -> None:
        user_records(fast.get_records(ShardIterator="i")[COLUMNS])

    def as_it_is() -> None:
        user_records(records_of(plain.get_records(ShardIterator="i")["Records"]))

    return {
        name: seconds / records * 1e6
        for name, seconds in medians({"boto3": as_it_is, "ours": with_our_handler}, repetitions).items()
    }


def damaged() -> dict[str, int]:
    """Return the number of payloads in a damaged aggregate, and how many each library returns."""
    good = aggregate([(f"key-{number}", b"event %d" % number) for number in range(10)])
    message = good[len(MAGIC) : -DIGEST_BYTES]
    # The fourth record points beyond the table of keys.
    spoiled = message.replace(b"\x08\x03\x1a\x07event 3", b"\x08\x63\x1a\x07event 3")
    assert spoiled != message
    data = aggregate([("k", b"x")])[: len(MAGIC)] + spoiled + _digest(spoiled)
    page = KinesisRecords.of([KinesisRecord("1", "outer", ARRIVAL, data)])
    with contextlib.redirect_stderr(io.StringIO()):
        theirs = [
            record["kinesis"]["data"] for record in iter_deaggregate_records(boto3_records(page), data_format="Boto3")
        ]
    ours = user_records(page).columns["data"].to_pylist()
    return {
        "events": 10,
        "aws_kinesis_agg": sum(b"event %d" % n in b"".join(map(_plain, theirs)) for n in range(10)),
        "ours": sum(b"event %d" % n in b"".join(ours) for n in range(10)),
    }


def _plain(data: bytes) -> bytes:
    # The peer encodes the user records of an aggregate, but not a record that it leaves whole.
    with contextlib.suppress(ValueError):
        return base64.b64decode(data, validate=True)
    return data


def _digest(message: bytes) -> bytes:
    import hashlib

    return hashlib.md5(message, usedforsecurity=False).digest()


def main() -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a quarter of the data, three repetitions")
    quick = parser.parse_args().quick
    aggregates, records, repetitions = (5, 2500, 3) if quick else (20, 10_000, 15)
    figures: dict[str, Any] = {"times_faster": {}, "parsing_times_faster": {}}
    print("Deaggregation, microseconds of processor time for each user record:")
    for size in SIZES:
        cost = deaggregation(size, aggregates, repetitions)
        peer, same = cost["aws_kinesis_agg"], cost["aws_kinesis_agg into columns"]
        for name, spent in cost.items():
            print(f"  {size:5} B  {name:<30} {spent:6.2f}  {peer / spent:5.1f}  {same / spent:5.1f}")
        ours = cost["ours, columns"]
        figures["times_faster"][size] = {
            "than aws_kinesis_agg": round(peer / ours, 2),
            "than aws_kinesis_agg into columns": round(same / ours, 2),
            "filtered, than aws_kinesis_agg into columns": round(same / cost["ours, columns, half filtered"], 2),
            "at most, by the digest": round(same / cost["the digest alone"], 2),
        }
    print("Parsing a page of plain records into columns, microseconds of processor time for each:")
    for size in (200, 1024):
        cost = parsing(size, records, repetitions)
        print(
            f"  {size:5} B  boto3 {cost['boto3']:6.2f}  ours {cost['ours']:6.2f}  {cost['boto3'] / cost['ours']:5.1f}"
        )
        figures["parsing_times_faster"][size] = round(cost["boto3"] / cost["ours"], 2)
    figures["of_a_damaged_aggregate"] = damaged()
    print(f"A damaged aggregate: {figures['of_a_damaged_aggregate']}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
