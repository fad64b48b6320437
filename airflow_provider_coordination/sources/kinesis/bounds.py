"""Which part of streams is read: where a stream that is new to its source starts, and where a bounded read ends.

`LATEST` becomes the instant of the request, by the clock of the service, and that instant is stored. A lease that is
found missing later starts there too, so that nothing is skipped. The Kinesis Client Library stores `LATEST` itself,
which skips everything that arrives until a worker reads the shard.

A bounded read reads a fixed part of streams, and then the partitions are COMPLETED.

Bounds are two instants, which apply to every shard that received records between them, or two sequence numbers for each
of some shards. They are stored in the shard's progress, as `ShardProgress.start` and `ShardProgress.end`. So every
reader of the partition stops exactly there.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.settings import FieldError, text_value
from airflow_provider_coordination.sources.kinesis.client import IncompleteListingError, KinesisClient
from airflow_provider_coordination.sources.kinesis.positions import (
    LATEST,
    TRIM_HORIZON,
    at_sequence_number,
    at_timestamp,
    aware_instant,
    is_number,
    parse_position,
)
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress
from airflow_provider_coordination.sources.kinesis.shards import (
    Shard,
    ShardListing,
    StreamDescription,
    complete_listing,
)

DATE_ACCURACY = timedelta(seconds=1)
"""The service reports the time in whole seconds."""
CREATION_SECONDS = timedelta(seconds=60)
"""The creation time of a stream may be this much earlier than the creation time of its first shards."""
CLOCK_DIFFERENCE = timedelta(minutes=1)
"""By how much the clocks of a service may differ: changes begin this much before their history is read."""
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class StartPosition:
    """Where a stream starts.

    :param position: the position that decides which leases are created; `LATEST` until its instant is known.
    :param began: the position at which new leases start, and which is stored.
    """

    position: str
    began: str

    def earlier(self, by: timedelta) -> StartPosition:
        """Return it with new leases that start earlier, if they start at an instant."""
        instant = parse_position(self.began).timestamp
        return self if instant is None else replace(self, began=at_timestamp(instant - by))


def resolve_start(
    position: str, described: StreamDescription, *, listed_at: datetime | None, is_known: bool, now: datetime
) -> StartPosition:
    """Return where a stream starts.

    :param position: as configured, or as stored.
    :param listed_at: when its shards were listed, by the service's clock (aware).
    :param is_known: whether the position is a stored one, which was checked when it was new.
    :param now: by the local clock (aware).
    :raises ConfigurationError: if it is an instant in the future.
    """
    if position == LATEST:
        # Never later than the local clock: Kinesis rejects an instant in the future.
        return StartPosition(LATEST, at_timestamp(min(listed_at or now, now)))
    instant = parse_position(position).timestamp
    if instant is None or is_known:
        return StartPosition(position, position)
    service_now = described.described_at + DATE_ACCURACY if described.described_at is not None else now
    if instant > service_now:
        raise ConfigurationError(
            f"stream '{described.name}': field 'initial_position' is {position!r}, which is in the future: now is "
            f"{service_now:%Y-%m-%dT%H:%M:%SZ}; give an earlier instant, or {LATEST}"
        )
    if instant < service_now - described.retention:
        log.warning(
            "stream %s keeps records for %d hours only, and not since %s: it is read from its earliest record",
            described.name, described.retention_hours, position,
        )  # fmt: skip
        return StartPosition(TRIM_HORIZON, TRIM_HORIZON)
    return StartPosition(position, position)


def first_shards(
    client: KinesisClient,
    described: StreamDescription,
    position: str,
    *,
    is_known: bool,
    now: datetime,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[ShardListing, StartPosition]:
    """List the shards that received records at a position, as the service selects them, and return where they start.

    :param client: as `kinesis_client` returns it.
    :param described: the stream.
    :param position: see `resolve_start`, also for the other parameters.
    :param sleep: waits that many seconds.
    :raises IncompleteListingError: if the listing stays incomplete.
    :raises ConfigurationError: if the position is an instant in the future.
    """
    start = resolve_start(position, described, listed_at=None, is_known=is_known, now=now)
    shard_filter = _filter(start.position, described, now)
    try:
        listing = complete_listing(client, described.address, shard_filter=shard_filter, sleep=sleep)
    except IncompleteListingError:
        at = shard_filter.get("Timestamp") or described.described_at or now
        if shard_filter["Type"] == "AT_LATEST" or not _is_near_creation(at, described):
            raise
        # At that instant the stream had no shard yet. The shards that it was created with hold everything since.
        listing = complete_listing(
            client, described.address or described.name, shard_filter={"Type": "FROM_TRIM_HORIZON"}, sleep=sleep
        )
    return listing, resolve_start(start.position, described, listed_at=listing.listed_at, is_known=is_known, now=now)


def _filter(position: str, described: StreamDescription, now: datetime) -> dict[str, Any]:
    if position == LATEST:
        return {"Type": "AT_LATEST"}
    instant = parse_position(position).timestamp
    if instant is None or instant <= max(described.kept_since(now), described.created_at):
        return {"Type": "AT_TRIM_HORIZON"}
    return {"Type": "AT_TIMESTAMP", "Timestamp": instant}


def _is_near_creation(instant: datetime, described: StreamDescription) -> bool:
    return instant - described.created_at <= CREATION_SECONDS


log = logging.getLogger(__name__)

EXAMPLE = (
    "{'start': '2026-01-01T00:00:00Z', 'end': '2026-01-02T00:00:00Z'}, or sequence numbers by shard: "
    "{'start': {'shardId-000000000000': '495...'}, 'end': {'shardId-000000000000': '496...'}}"
)


@dataclass(frozen=True, kw_only=True)
class ShardBounds:
    """The part of one shard that is read.

    :param shard_id: the shard.
    :param start: the sequence number of the first Kinesis record, a decimal number.
    :param end: the sequence number of the last one.
    """

    shard_id: str
    start: str
    end: str


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """The part of streams that is read.

    :param start: read records that arrived at this instant (aware) or later; None for all that the streams keep.
    :param end: read records that arrived before this instant (aware); None if `shards` are given.
    :param shards: the shards of the only stream, each with its sequence numbers; empty if instants are given.
    """

    start: datetime | None = None
    end: datetime | None = None
    shards: tuple[ShardBounds, ...] = ()

    def check(self, streams: Iterable[str]) -> None:
        """Check every value.

        :param streams: the streams that are read.
        :raises FieldError: naming the field, the value and the remedy.
        """
        names = list(streams)
        if self.shards and len(names) > 1:
            raise _wrong(
                "gives sequence numbers, which belong to one stream, but field "
                f"'streams' names {len(names)}; read each stream as a separate source"
            )
        for shard in self.shards:
            if int(shard.start) > int(shard.end):
                raise _wrong(
                    f"starts shard {shard.shard_id!r} at {shard.start}, after its end {shard.end}; exchange the two"
                )
        if not self.shards and self.end is None:
            raise _wrong("is missing; give the instant where reading ends", "end")
        if self.start is not None and self.end is not None and self.start > self.end:
            raise _wrong(f"is {_text(self.start)}, after 'end', {_text(self.end)}; exchange the two", "start")

    @property
    def name(self) -> str:
        """The name of these bounds: part of the name of a source, and stored by its shard sync."""
        if self.end is not None:
            return f"{TRIM_HORIZON if self.start is None else _text(self.start)}--{_text(self.end)}"
        ranges = sorted((shard.shard_id, int(shard.start), int(shard.end)) for shard in self.shards)
        return f"positions-{hashlib.sha256(repr(ranges).encode()).hexdigest()[:12]}"

    @property
    def start_position(self) -> str | None:
        """The earliest start of every shard; None for the start of the shard, or if each has its own."""
        return None if self.start is None else at_timestamp(self.start)

    @property
    def end_position(self) -> str | None:
        """Where every shard ends; None if each has its own."""
        return None if self.end is None else at_timestamp(self.end)


def bounds_value(value: Any) -> Bounds | None:
    """Parse the bounds of a read; None means no bounds.

    :param value: an object with `start` and `end`. Both are instants (aware), where `start` may be `TRIM_HORIZON`, or
        both are objects with a sequence number for each shard.
    :raises FieldError: if it has another form, or start and end do not match.
    """
    if isinstance(value, Bounds) or text_value(value) is None:
        return value or None
    if not isinstance(value, Mapping) or set(value) != {"start", "end"}:
        raise _wrong(f"must have 'start' and 'end', such as {EXAMPLE}; got {value!r}")
    start, end = value["start"], value["end"]
    if isinstance(start, Mapping) and isinstance(end, Mapping):
        return _of_shards(start, end)
    if isinstance(start, Mapping) or isinstance(end, Mapping):
        raise _wrong(
            "must have an instant both as 'start' and as 'end', or sequence numbers by shard in both; got "
            + repr(value)
        )
    from_earliest = str(start).strip().upper() == TRIM_HORIZON
    first, last = None if from_earliest else _instant("start", start), _instant("end", end)
    if first is not None and first >= last:
        raise _wrong(f"must be before 'end', {str(end)!r}; got {str(start)!r}; exchange the two", "start")
    return Bounds(start=first, end=last)


def _wrong(problem: str, part: str = "") -> FieldError:
    return FieldError("KinesisStreams", f"bounds.{part}" if part else "bounds", problem)


def _of_shards(start: Mapping[Any, Any], end: Mapping[Any, Any]) -> Bounds:
    if only := sorted(set(map(str, start)) ^ set(map(str, end))):
        named = "start" if only[0] in map(str, start) else "end"
        raise _wrong(
            f"must name the same shards in 'start' and 'end', but only {named!r} names {only[0]!r}; give it in both, "
            "or leave it out"
        )
    if not start:
        raise _wrong("must name at least one shard; got {}; give each shard its sequence numbers")
    return Bounds(
        shards=tuple(
            ShardBounds(
                shard_id=str(shard), start=_number("start", shard, start[shard]), end=_number("end", shard, end[shard])
            )
            for shard in start
        )
    )


def _number(part: str, shard: Any, value: Any) -> str:
    text = str(value).strip()
    if isinstance(value, bool | float) or not is_number(text):
        raise _wrong(f"must have a sequence number in decimal digits for shard {shard!r}; got {value!r}", part)
    return str(int(text))


def _instant(part: str, value: Any) -> datetime:
    instant = aware_instant(value)
    if instant is None:
        also = f" or {TRIM_HORIZON!r}" if part == "start" else ""
        raise _wrong(
            f"must be an instant with a time zone, such as '2026-01-01T00:00:00Z'{also}; got {str(value)!r}", part
        )
    return instant


def check_unchanged(source: str, stream: str, before: str | None, now: str | None) -> None:
    """Check that a source reads a stream within the same bounds as before.

    :param before: the name of the bounds so far, see `Bounds.name`; None without bounds.
    :param now: the name of the bounds in the settings.
    :raises ConfigurationError: if they differ.
    """

    def within(bounds: str | None) -> str:
        return "without bounds" if bounds is None else f"within the bounds {bounds}"

    if before != now:
        raise ConfigurationError(
            f"source {source!r} reads stream {stream!r} {within(before)}, and the settings now read it "
            f"{within(now)}; use another source for that"
        )


def check_kept(stream: StreamDescription, bounds: Bounds, on_data_loss: str) -> None:
    """Check that a stream still keeps the records between two instants; log what is lost if reading continues.

    :param on_data_loss: `"fail"`, or another value to continue with what is left.
    :raises ConfigurationError: if records are lost and `on_data_loss` is `"fail"`.
    """
    lost = None if bounds.start is None or bounds.end is None else trimmed_part(stream, bounds.start, bounds.end)
    if lost is None:
        return
    lost = f"{lost}, but the bounds {bounds.name} include them"
    if on_data_loss == "fail":
        raise ConfigurationError(f"{lost}; start later, or set on_data_loss='earliest' to read the remaining records")
    log.error("data loss: %s", lost)


def trimmed_part(stream: StreamDescription, start: datetime, end: datetime) -> str | None:
    """Return a sentence about the trimmed part of the records between two instants (aware); None if all are kept."""
    if start >= end:
        return None
    begun = max(start, stream.created_at)
    gone = min(stream.kept_since(datetime.now(UTC)), end)
    if begun >= gone:
        return None
    return (
        f"stream {stream.name!r} keeps records for {stream.retention_hours} hours: the records that arrived from "
        f"{begun:%Y-%m-%dT%H:%M:%SZ} to {gone:%Y-%m-%dT%H:%M:%SZ} are gone"
    )


def bounded_shards(
    bounds: Bounds, described: StreamDescription, listed: Iterable[Shard], *, on_data_loss: str, now: datetime
) -> Mapping[str, ShardProgress]:
    """Return the first progress of each shard whose sequence numbers are given, by its name.

    :param described: the stream.
    :param listed: all its shards.
    :param on_data_loss: what happens to a shard that is not listed: `"fail"`, or `"earliest"` to leave it out.
    :param now: the present instant (aware).
    :raises ConfigurationError: if the stream does not have a shard, or a shard does not have a number.
    """
    shards = {shard.shard_id: shard for shard in listed}
    first = {}
    for wanted in bounds.shards:
        shard = shards.get(wanted.shard_id)
        if shard is None:
            _report_missing(described.name, wanted, on_data_loss)
            continue
        for field, number in (("start", wanted.start), ("end", wanted.end)):
            if not shard.may_have(number):
                raise ConfigurationError(
                    f"field 'bounds': {field} {number} is not in shard {shard.shard_id!r} of stream "
                    f"{described.name!r}, whose sequence numbers begin at {shard.numbers}; give one in this range"
                )
        checkpoint, owed_since = beginning_at(described, shards, shard, wanted.start, now)
        first[wanted.shard_id] = ShardProgress.first(
            described.name,
            shard,
            kind=described.kind,
            checkpoint=checkpoint,
            owed_since=owed_since,
            start=at_sequence_number(wanted.start),
            end=wanted.end,
        )
    return first


def beginning_at(
    described: StreamDescription, listed: Mapping[str, Shard], shard: Shard, number: str, now: datetime
) -> tuple[str, datetime | None]:
    """Return the position for a read that starts with a sequence number, and since when nothing may be missing there.

    No record has a shard's starting sequence number, so that number cannot show that nothing before it is lost.

    :param described: the stream.
    :param listed: all its shards, by name.
    :param shard: one of them.
    :param number: of the first Kinesis record.
    :param now: the present instant (aware).
    :returns: the position, and an instant (aware) at which the shard still had all its records; None if unknown.
    """
    is_beginning = int(number) == int(shard.starting_sequence_number)
    owed_since = _young_since(described, now)
    if owed_since is None and is_beginning and any(parent in listed for parent in shard.parent_shard_ids):
        owed_since = now  # a shard is listed until its last record expires, so its child still has its first record
    return TRIM_HORIZON if is_beginning and owed_since else at_sequence_number(number), owed_since


def _report_missing(stream: str, wanted: ShardBounds, on_data_loss: str) -> None:
    lost = (
        f"stream {stream!r} has no shard {wanted.shard_id!r}, for which field 'bounds' gives {wanted.start} to "
        f"{wanted.end}: it expired with its records, or never existed"
    )
    if on_data_loss == "fail":
        raise ConfigurationError(f"{lost}; correct its name, remove it, or set on_data_loss='earliest' to leave it out")
    log.error("data loss: %s", lost)


def _young_since(described: StreamDescription, now: datetime) -> datetime | None:
    """Return the creation time of a stream (aware) if it is too young to have lost a record; otherwise None."""
    return described.created_at if described.created_at > described.kept_since(now) else None


def _text(instant: datetime) -> str:
    text = instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
    return f"{text.rstrip('0').rstrip('.')}Z"
