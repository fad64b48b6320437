"""Bounded reads: the part of streams that is read, after which there is nothing left to do.

Bounds are two instants, which hold for every shard that took records between them, or two sequence numbers of each of
some shards. The bounds of a shard are kept with its partition: its start is where it begins, and its end is
`ShardProgress.end`. So whoever reads the partition stops exactly there, and it is COMPLETED.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.kinesis.positions import TRIM_HORIZON, at_sequence_number, at_timestamp
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress
from airflow_provider_coordination.sources.kinesis.shards import Shard, StreamDescription

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ShardBounds:
    """What is read of one shard.

    :param shard_id: the shard.
    :param start: the sequence number of the first Kinesis record, a decimal number.
    :param end: the sequence number of the last one.
    """

    shard_id: str
    start: str
    end: str


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What is read of streams.

    :param start: what arrived at this instant (aware) or later; None for all that the streams keep.
    :param end: what arrived before this instant (aware); None where `shards` are given.
    :param shards: the shards of the only stream, each with its sequence numbers; none where instants are given.
    """

    start: datetime | None = None
    end: datetime | None = None
    shards: tuple[ShardBounds, ...] = ()

    def check(self, streams: Iterable[str]) -> None:
        """Check every value.

        :param streams: the streams that are read.
        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        names = list(streams)
        if self.shards and len(names) > 1:
            raise ConfigurationError(
                f"KinesisStreams: field 'bounds' gives sequence numbers, which are of one stream, and field 'streams' "
                f"names {len(names)}: read each stream as a source of its own"
            )
        for shard in self.shards:
            if int(shard.start) > int(shard.end):
                raise ConfigurationError(
                    f"KinesisStreams: field 'bounds': shard {shard.shard_id!r} starts at {shard.start}, after its end "
                    f"{shard.end}: exchange the two"
                )
        if not self.shards and self.end is None:
            raise ConfigurationError("KinesisStreams: field 'bounds': 'end' is missing: give where reading ends")
        if self.start is not None and self.end is not None and self.start > self.end:
            raise ConfigurationError(
                f"KinesisStreams: field 'bounds': 'start' is {_text(self.start)}, after 'end', {_text(self.end)}: "
                "exchange the two"
            )

    @property
    def name(self) -> str:
        """What distinguishes these bounds from others: part of the name of a source, and known to its shard sync."""
        if self.end is not None:
            return f"{TRIM_HORIZON if self.start is None else _text(self.start)}--{_text(self.end)}"
        ranges = sorted((shard.shard_id, int(shard.start), int(shard.end)) for shard in self.shards)
        return f"positions-{hashlib.sha256(repr(ranges).encode()).hexdigest()[:12]}"

    @property
    def start_position(self) -> str | None:
        """Where every shard begins at the earliest; None for its beginning, or if each has its own."""
        return None if self.start is None else at_timestamp(self.start)

    @property
    def end_position(self) -> str | None:
        """Where every shard ends; None if each has its own."""
        return None if self.end is None else at_timestamp(self.end)


def check_kept(stream: StreamDescription, bounds: Bounds, on_data_loss: str) -> None:
    """Check that a stream still keeps what arrived between two instants; log what it does not, if that is to go on.

    :param on_data_loss: `"fail"`, or `"reset"` to go on with what is left.
    :raises ConfigurationError: if it does not keep it, and that is not to go on.
    """
    lost = None if bounds.start is None or bounds.end is None else trimmed_part(stream, bounds.start, bounds.end)
    if lost is None:
        return
    lost = f"{lost}, and {bounds.name} asks for it"
    if on_data_loss == "fail":
        raise ConfigurationError(f"{lost}; begin later, or go on with what is left by on_data_loss='reset'")
    log.error("data loss: %s", lost)


def trimmed_part(stream: StreamDescription, start: datetime, end: datetime) -> str | None:
    """Return which part of what arrived between two instants (aware) a stream has trimmed; None if it keeps all."""
    if start >= end:
        return None
    kept_from = (stream.described_at or datetime.now(UTC)) - timedelta(hours=stream.retention_hours)
    begun = max(start, datetime.fromtimestamp(stream.creation_epoch, UTC))
    gone = min(kept_from, end)
    if begun >= gone:
        return None
    return (
        f"stream {stream.name!r} keeps {stream.retention_hours} hours, so what arrived from {begun:%Y-%m-%dT%H:%M:%SZ} "
        f"to {gone:%Y-%m-%dT%H:%M:%SZ} is gone"
    )


def bounded_shards(
    bounds: Bounds, described: StreamDescription, listed: Iterable[Shard], *, on_data_loss: str, now: datetime
) -> Mapping[str, ShardProgress]:
    """Return the first progress of each shard whose sequence numbers are given, by its name.

    :param described: the stream.
    :param listed: all its shards.
    :param on_data_loss: what becomes of a shard that is not listed: `"fail"`, or `"reset"` to leave it out.
    :param now: the present instant (aware).
    :raises ConfigurationError: if the stream has no such shard, or a shard no such number.
    """
    shards = {shard.shard_id: shard for shard in listed}
    first = {}
    for wanted in bounds.shards:
        shard = shards.get(wanted.shard_id)
        if shard is None:
            _report_missing(described.name, wanted, on_data_loss)
            continue
        _check_numbers(described.name, shard, wanted)
        checkpoint, owed_since = beginning_at(described, shards, shard, wanted.start, now)
        first[wanted.shard_id] = ShardProgress.first(
            described.name,
            shard,
            checkpoint=checkpoint,
            owed_since=owed_since,
            start=at_sequence_number(wanted.start),
            end=wanted.end,
        )
    return first


def beginning_at(
    described: StreamDescription, listed: Mapping[str, Shard], shard: Shard, number: str, now: datetime
) -> tuple[str, datetime | None]:
    """Return the position to read from, to begin with a sequence number, and since when nothing may be missing there.

    No record has the number with which a shard begins, so its presence cannot show that nothing before it is lost.

    :param described: the stream.
    :param listed: all its shards, by name.
    :param shard: one of them.
    :param number: of the first Kinesis record.
    :param now: the present instant (aware).
    :returns: the position, and an instant (aware) at which the shard had all its records; None if unknown.
    """
    is_beginning = int(number) == int(shard.starting_sequence_number)
    owed_since = _young_since(described, now)
    if owed_since is None and is_beginning and any(parent in listed for parent in shard.parent_shard_ids):
        owed_since = now  # a shard is listed until its last record expires: its child still has its first one
    return TRIM_HORIZON if is_beginning and owed_since else at_sequence_number(number), owed_since


def _report_missing(stream: str, wanted: ShardBounds, on_data_loss: str) -> None:
    lost = (
        f"stream {stream!r} has no shard {wanted.shard_id!r}, of which field 'bounds' asks for {wanted.start} to "
        f"{wanted.end}: it expired with its records, or never was"
    )
    if on_data_loss == "fail":
        raise ConfigurationError(f"{lost}; correct its name, or leave it out, also by on_data_loss='reset'")
    log.error("data loss: %s", lost)


def _check_numbers(stream: str, shard: Shard, wanted: ShardBounds) -> None:
    first, last = int(shard.starting_sequence_number), int(shard.ending_sequence_number or 0)
    for field, number in (("start", wanted.start), ("end", wanted.end)):
        if int(number) < first or (last and int(number) > last):
            raise ConfigurationError(
                f"field 'bounds': {field} {number} is none of shard {shard.shard_id!r} of stream {stream!r}, whose "
                f"sequence numbers begin at {first}" + (f" and end at {last}" if last else "") + "; give one of its own"
            )


def _young_since(described: StreamDescription, now: datetime) -> datetime | None:
    """Return since when a stream has records (aware), if it is too young to have lost one."""
    created = datetime.fromtimestamp(described.creation_epoch, UTC)
    kept_since = (described.described_at or now) - timedelta(hours=described.retention_hours)
    return created if created > kept_since else None


def _text(instant: datetime) -> str:
    text = instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
    return f"{text.rstrip('0').rstrip('.')}Z"
