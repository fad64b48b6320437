"""The processor time of delivering an event through Spark, by the format of its payload, beside JSON.

The same events are landed in each format, and delivered to a dataset with the same columns. The time is of the
job's JVM and of its Python processes together, so other work on the machine changes little. Formats alternate, and
medians are compared.

Usage: python -m benchmarks.payload_formats [--quick]
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import statistics
import tempfile
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import fastavro
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from airflow_provider_coordination.sources.kinesis.batch_reading import ShardPage
from airflow_provider_coordination.sources.kinesis.records import KinesisRecord, KinesisRecords
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS
from airflow_provider_coordination.spark.decoded_payload import payload_of
from airflow_provider_coordination.spark.delivery import Attempt
from airflow_provider_coordination.spark.kinesis.landing import LandedShardRow
from airflow_provider_coordination.spark.kinesis.shard_format import SHARD_RECORDS
from airflow_provider_coordination.spark.payload_settings import Avro, Csv, Json, Payload, Protobuf
from airflow_provider_coordination.spark.sinks import routed_sinks
from airflow_provider_coordination.spark.sinks.parquet import ParquetSink
from airflow_provider_coordination.spark.transformation import Transformation
from airflow_provider_coordination.spark.transformed_delivery import TransformedDelivery
from benchmarks.landing import session
from benchmarks.landing_cost import ARRIVAL, PAGE_RECORDS, SCHEMA, land, processor_seconds

SIZES = (200, 1024)
PER_RECORD = 50
"""The events of a record in formats that have several."""
AT = datetime(2026, 1, 1, tzinfo=UTC)
AVRO = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "amount", "type": "double"},
        {"name": "text", "type": "string"},
    ],
}
Event = Mapping[str, Any]


@dataclass(frozen=True)
class Format:
    """A format of payloads.

    :param payload: how a job describes it.
    :param encode: returns the payload of some events.
    :param events: how many events a payload has.
    """

    payload: Payload
    encode: Callable[[Sequence[Event]], bytes]
    events: int = 1


def event(number: int, size: int) -> Event:
    """Return an event that has about this number of bytes as JSON."""
    return {
        "id": f"event-{number:012d}",
        "at": AT,
        "amount": number / 7,
        "text": os.urandom(size // 2).hex()[: size - 80],
    }


def as_json(event: Event) -> bytes:
    """Return an event as JSON."""
    return json.dumps({**event, "at": "2026-01-01T00:00:00Z"}).encode()


def _descriptors() -> descriptor_pb2.FileDescriptorSet:
    files = descriptor_pb2.FileDescriptorSet()
    stamp = files.file.add(name="google/protobuf/timestamp.proto", package="google.protobuf", syntax="proto3")
    message = stamp.message_type.add(name="Timestamp")
    message.field.add(name="seconds", number=1, type=3, label=1)
    message.field.add(name="nanos", number=2, type=5, label=1)
    message = files.file.add(name="event.proto", syntax="proto3", dependency=[stamp.name]).message_type.add(
        name="Event"
    )
    for number, (name, kind) in enumerate((("id", 9), ("amount", 1), ("text", 9)), 1):
        message.field.add(name=name, number=number, type=kind, label=1)
    message.field.add(name="at", number=4, type=11, label=1, type_name=".google.protobuf.Timestamp")
    return files


def formats() -> dict[str, Format]:
    """Return the formats by name; JSON is the first."""
    schema, files, pool = fastavro.parse_schema(AVRO), _descriptors(), descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.AddSerializedFile(file.SerializeToString())
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("Event"))

    def avro(events: Sequence[Event]) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, schema, events[0])
        return stream.getvalue()

    def container(events: Sequence[Event]) -> bytes:
        stream = io.BytesIO()
        fastavro.writer(stream, schema, events, codec="deflate")
        return stream.getvalue()

    def protobuf(events: Sequence[Event]) -> bytes:
        [one] = events
        message = made(id=one["id"], amount=one["amount"], text=one["text"])
        message.at.seconds = int(AT.timestamp())
        return bytes(message.SerializeToString())

    def csv(events: Sequence[Event]) -> bytes:
        return b"\n".join(f"{e['id']},2026-01-01T00:00:00Z,{e['amount']!r},{e['text']}".encode() for e in events)

    def logs(events: Sequence[Event]) -> bytes:
        found = [{"id": e["id"], "timestamp": 1767225600000, "message": as_json(e).decode()} for e in events]
        about = {"messageType": "DATA_MESSAGE", "owner": "1", "logGroup": "g", "logStream": "s", "logEvents": found}
        return gzip.compress(json.dumps(about).encode())

    inline = f"data:;base64,{b64encode(files.SerializeToString()).decode()}"
    return {
        "json": Format(Payload(), lambda events: as_json(events[0])),
        "json, gzip": Format(Payload(compression="gzip"), lambda events: gzip.compress(as_json(events[0]))),
        "json, zstd": Format(
            Payload(compression="zstd"), lambda events: pa.Codec("zstd").compress(as_json(events[0]), asbytes=True)
        ),
        "json, many": Format(
            Payload(json=Json(many=True)), lambda events: b"\n".join(map(as_json, events)), PER_RECORD
        ),
        "cloudwatch logs": Format(Payload(cloudwatch_logs=True), logs, PER_RECORD),
        "csv": Format(Payload(csv=Csv()), csv),
        "csv, many": Format(Payload(csv=Csv()), csv, PER_RECORD),
        "avro": Format(Payload(avro=Avro(schema=json.dumps(AVRO))), avro),
        "avro container": Format(Payload(avro=Avro(schema=json.dumps(AVRO))), container, PER_RECORD),
        "protobuf": Format(Payload(protobuf=Protobuf(descriptor_set=inline, message="Event")), protobuf),
    }


def pages_of(payloads: Sequence[bytes]) -> list[ShardPage]:
    """Return pages of a shard with these payloads."""
    records = [KinesisRecord(str(10**55 + number), "key", ARRIVAL, data) for number, data in enumerate(payloads)]
    cut = [records[first : first + PAGE_RECORDS] for first in range(0, len(records), PAGE_RECORDS)]
    return [
        ShardPage(
            records=KinesisRecords.of(page),
            millis_behind_latest=1000,
            end_of_shard=page is cut[-1],
            children=(),
            read_at=ARRIVAL,
        )
        for page in cut
    ]


def delivering_seconds(landed: LandedShardRow, payload: Payload, folder: str) -> tuple[float, int]:
    """Return the processor time of a delivery, and the number of rows that it makes."""
    sinks = [ParquetSink(name="main", path=folder, where=None)]
    transformation = Transformation(
        session(),
        routed_sinks(sinks),
        layout=SHARD_RECORDS,
        payload=payload_of(payload, SCHEMA, SHARD_RECORDS, None, DEFAULT_ACCESS),
    )
    delivery = TransformedDelivery(transformation, sinks, source="b")
    batch = landed.batch(1)
    attempt = Attempt(
        batch=batch, file=batch.file, folder="b/shard", set_id="set", fencing_token=1,
        source="b", partition_key="shard", owner="job",
    )  # fmt: skip
    start = processor_seconds()
    prepared = delivery.prepare([attempt], delivery.sinks)[batch.batch_id]
    if isinstance(prepared, Exception):
        raise prepared
    for sink in delivery.sinks:
        delivery.commit(sink, [attempt])
    return processor_seconds() - start, prepared.records["main"]


def measured(count: int, size: int, repetitions: int) -> dict[str, float]:
    """Return the microseconds for an event, by format."""
    events = [event(number, size) for number in range(count)]
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        landed = {}
        for number, (name, each) in enumerate(formats().items()):
            payloads = [each.encode(events[first : first + each.events]) for first in range(0, count, each.events)]
            landed[name] = each, land(pages_of(payloads), f"{folder}/landed-{number}")
        for repetition in range(repetitions + 1):
            for number, (name, (each, row)) in enumerate(landed.items()):
                spent, rows = delivering_seconds(row, each.payload, f"{folder}/{number}-{repetition}")
                assert rows == count, (name, rows)
                if repetition:
                    times.setdefault(name, []).append(spent / count * 1e6)
    return {name: statistics.median(spent) for name, spent in times.items()}


def main() -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the data, two repetitions")
    count, repetitions = (20_000, 2) if parser.parse_args().quick else (200_000, 5)
    found = {size: measured(count, size, repetitions) for size in SIZES}
    print(f"Microseconds of processor time for each event, medians of {repetitions} runs of {count:,}:\n")
    print("| payload | " + " | ".join(f"{size} B | of JSON's throughput" for size in SIZES) + " |")
    print("|---|" + "--:|" * (2 * len(SIZES)))
    ratios = {size: {name: times["json"] / spent for name, spent in times.items()} for size, times in found.items()}
    for name in found[SIZES[0]]:
        print(f"| {name} | " + " | ".join(f"{found[s][name]:.1f} | {ratios[s][name]:.2f}" for s in SIZES) + " |")
    print("\n" + json.dumps({"microseconds": found, "of_json": ratios}))


if __name__ == "__main__":
    main()
