"""The options of the data source: their names, other spellings, and values.

Spark passes options as text; the case of their names does not matter. Other connectors spell some options differently.
Each spelling is accepted as the same option, with or without the prefix `kinesis.`.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.kinesis.pacing import MAX_RECORDS_PER_READ
from airflow_provider_coordination.sources.kinesis.positions import (
    AT_TIMESTAMP,
    LATEST,
    TRIM_HORIZON,
    aware_instant,
    is_number,
)
from airflow_provider_coordination.sources.kinesis.stream_names import EXAMPLE_ARN, arn_parts
from airflow_provider_coordination.spark.job_settings import MIN_SLOT_MEMORY_BYTES, RoundSettings

FORMAT = "coordinated_kinesis"
"""The name of the data source, for `spark.read.format`."""
PREFIX = "kinesis."
"""A prefix that every option name may have."""

OPTIONS: Mapping[str, tuple[str, ...]] = {
    "streamName": (),
    "streamARN": (),
    "region": (),
    "endpointUrl": (),
    "initialPosition": ("startingPosition", "startingTimestamp"),
    "endingPosition": ("endingTimestamp",),
    "shardIds": (),
    "shardRanges": (),
    "awsAccessKey": ("awsAccessKeyId",),
    "awsSecretKey": ("awsSecretAccessKey",),
    "awsSessionToken": ("sessionToken",),
    "roleArn": ("stsRoleArn", "awsSTSRoleARN"),
    "roleExternalId": (),
    "roleSessionName": ("stsSessionName", "awsSTSSessionName"),
    "consumerMode": ("consumerType",),
    "consumerName": (),
    "maxRecordsPerFetch": ("getRecords.numberOfRecordsPerFetch", "executor.maxRecordPerRead", "maxRecordPerRead"),
    "shardsPerTask": (),
    "slotMemoryBytes": (),
    "failOnDataLoss": (),
}
"""The options, each with its other spellings."""
_SECRETS = ("awsSecretKey", "awsSessionToken")
_BY_SPELLING = {text.lower(): (name, text) for name, more in OPTIONS.items() for text in (name, *more)}
_ENDPOINT = re.compile(r"https?://kinesis\.([a-z0-9-]+)\.amazonaws\.com(\.cn)?/?")
_INSTANT = "an instant with a time zone, such as 2026-01-01T00:00:00Z"
_RANGES = '{"shardId-000000000000": {"start": "495...", "end": "496..."}}'


@dataclass(frozen=True, kw_only=True)
class ShardNumbers:
    """The part of a shard to read, by sequence numbers.

    :param shard_id: the shard.
    :param start: the number of the first Kinesis record; None for the start of the read.
    :param end: the number of the last Kinesis record; None for the end of the read.
    """

    shard_id: str
    start: str | None = None
    end: str | None = None


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """What to read, and how.

    :param streams: the names of the streams.
    :param stream_arn: the ARN of the only stream, with which calls name it; None for its name.
    :param kinesis: how to reach Kinesis.
    :param start: read records that arrived at this instant (aware) or later; `TRIM_HORIZON` for all retained records,
        `LATEST` for records that arrive after the read has begun.
    :param end: read records that arrived before this instant (aware); None for those that exist when the frame is
        created.
    :param shard_ids: the only shards to read; empty for all.
    :param ranges: the parts of shards to read; empty if instants define the range.
    :param consumer_name: the consumer to read as by enhanced fan-out; None polls.
    :param page_records: the number of records per request.
    :param shards_per_task: the number of shards that one task reads at the same time; None for one task per processor.
    :param slot_memory_bytes: the limit of read data that a task holds.
    :param fail_on_data_loss: whether lost records fail the read.
    """

    streams: tuple[str, ...]
    kinesis: AwsSettings
    stream_arn: str | None = None
    start: datetime | str = TRIM_HORIZON
    end: datetime | None = None
    shard_ids: tuple[str, ...] = ()
    ranges: tuple[ShardNumbers, ...] = ()
    consumer_name: str | None = None
    page_records: int = MAX_RECORDS_PER_READ
    shards_per_task: int | None = None
    slot_memory_bytes: int = RoundSettings.slot_memory_bytes
    fail_on_data_loss: bool = True


def read_options(values: Mapping[str, str]) -> ReadOptions:
    """Parse the options.

    :param values: the options, as Spark passes them.
    :raises ConfigurationError: naming the option, the value and the remedy; secrets are not shown.
    """
    options = _OptionValues(values)
    streams, stream_arn, region = _streams(options)
    shard_ids = options.names("shardIds")
    ranges = _ranges(options)
    if len(streams) > 1 and (shard_ids or ranges):
        name = "shardIds" if shard_ids else "shardRanges"
        raise options.invalid(name, f"names shards of one stream, but {len(streams)} are read: read each separately")
    if shard_ids and ranges:
        raise options.invalid("shardIds", "cannot be combined with shardRanges, which names the shards: leave one out")
    start, end = _window(options)
    mode = options.one_of(
        "consumerMode", {"polling": "polling", "getrecords": "polling", "efo": "efo", "subscribetoshard": "efo"}
    )
    consumer = options.text("consumerName")
    if mode == "efo" and consumer is None:
        raise options.invalid("consumerMode", "needs consumerName: name the consumer to read as")
    if mode != "efo" and consumer is not None:
        raise options.invalid("consumerName", "is for enhanced fan-out: set consumerMode=efo, or leave it out")
    return ReadOptions(
        streams=streams,
        stream_arn=stream_arn,
        kinesis=_access(options, region),
        start=start,
        end=end,
        shard_ids=shard_ids,
        ranges=ranges,
        consumer_name=consumer,
        page_records=options.number("maxRecordsPerFetch", ReadOptions.page_records, 1, MAX_RECORDS_PER_READ),
        shards_per_task=options.number("shardsPerTask", 0, 1) or None,
        slot_memory_bytes=options.number("slotMemoryBytes", ReadOptions.slot_memory_bytes, MIN_SLOT_MEMORY_BYTES),
        fail_on_data_loss=options.one_of("failOnDataLoss", {"true": "true", "false": "false"}) != "false",
    )


class _OptionValues:
    """The option values of a read, by name.

    :raises ConfigurationError: if an option is unknown, or set twice.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values: dict[str, str] = {}
        self._spelled: dict[str, str] = {}
        for key, value in options.items():
            name, spelling = _canonical_name(key)
            if name in self._values:
                raise ConfigurationError(
                    f"{FORMAT}: options '{self._spelled[name]}' and '{spelling}' are the same option: set it once"
                )
            self._values[name], self._spelled[name] = value.strip(), spelling

    def text(self, name: str) -> str | None:
        """Return an option's value; None if it is missing or empty."""
        return self._values.get(name) or None

    def names(self, name: str) -> tuple[str, ...]:
        """Return the items of a comma-separated list; each item may occur once."""
        parts = [part.strip() for part in (self.text(name) or "").split(",") if part.strip()]
        if double := next((part for n, part in enumerate(parts) if part in parts[:n]), None):
            raise self.invalid(name, f"names {double!r} twice: name each once")
        return tuple(parts)

    def number(self, name: str, default: int, minimum: int, maximum: int | None = None) -> int:
        """Return a whole number within bounds."""
        text = self.text(name)
        if text is None:
            return default
        value = int(text) if is_number(text) else -1
        if value < minimum or (maximum is not None and value > maximum):
            upper = f" to {maximum}" if maximum is not None else " or more"
            raise self.invalid(name, f"must be a whole number, {minimum}{upper}")
        return value

    def one_of(self, name: str, meanings: Mapping[str, str]) -> str | None:
        """Return the meaning of a keyword; None if the option is missing."""
        text = self.text(name)
        if text is None:
            return None
        if text.lower() not in meanings:
            raise self.invalid(name, f"must be one of {', '.join(dict.fromkeys(meanings.values()))}")
        return meanings[text.lower()]

    def invalid(self, name: str, why: str) -> ConfigurationError:
        """Return the error for an invalid value of an option.

        :param why: what is wrong, and the remedy.
        """
        value = self.text(name)
        shown = "" if value is None else " ('***')" if name in _SECRETS else f" ({value!r})"
        return ConfigurationError(f"{FORMAT}: option '{self._spelled.get(name, name)}'{shown} {why}")


def _canonical_name(key: str) -> tuple[str, str]:
    """Return the name of an option, and its spelling by the user."""
    lower = key.lower()
    found = _BY_SPELLING.get(lower) or _BY_SPELLING.get(lower.removeprefix(PREFIX))
    if found is not None:
        return found[0], (PREFIX if lower.startswith(PREFIX) else "") + found[1]
    near = difflib.get_close_matches(lower.removeprefix(PREFIX), _BY_SPELLING, n=1, cutoff=0.0)
    raise ConfigurationError(
        f"{FORMAT}: option '{key}' is unknown; the nearest is '{_BY_SPELLING[near[0]][1]}'. "
        f"The options are: {', '.join(OPTIONS)}"
    )


def _streams(options: _OptionValues) -> tuple[tuple[str, ...], str | None, str | None]:
    """Return the streams, and the ARN of the only stream with its region, if an ARN is set."""
    names, arn = options.names("streamName"), options.text("streamARN")
    if names and arn is not None:
        raise options.invalid("streamARN", "cannot be combined with streamName: leave one out")
    if arn is not None:
        parts = arn_parts(arn)
        if parts is None:
            raise options.invalid("streamARN", f"must be like {EXAMPLE_ARN}")
        return (parts.name,), arn, parts.region
    if not names:
        raise ConfigurationError(f"{FORMAT}: option 'streamName' is missing: name the stream, or several with commas")
    return names, None, None


def _access(options: _OptionValues, region: str | None) -> AwsSettings:
    endpoint = options.text("endpointUrl")
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        raise options.invalid("endpointUrl", "must begin with http:// or https://")
    named = _ENDPOINT.fullmatch(endpoint or "")
    role = options.text("roleArn")
    if role is not None and not role.startswith("arn:"):
        raise options.invalid("roleArn", "must be an ARN, like arn:aws:iam::123456789012:role/reader")
    for name, other in (
        ("awsAccessKey", "awsSecretKey"),
        ("awsSecretKey", "awsAccessKey"),
        ("awsSessionToken", "awsAccessKey"),
        ("roleExternalId", "roleArn"),
        ("roleSessionName", "roleArn"),
    ):
        if options.text(name) and not options.text(other):
            raise options.invalid(name, f"needs {other}: give both, or neither")
    return AwsSettings(
        region=options.text("region") or region or (named[1] if named else None),
        endpoint_url=endpoint,
        role_arn=role,
        external_id=options.text("roleExternalId"),
        role_session_name=options.text("roleSessionName"),
        access_key_id=options.text("awsAccessKey"),
        secret_access_key=options.text("awsSecretKey"),
        session_token=options.text("awsSessionToken"),
    )


def _window(options: _OptionValues) -> tuple[datetime | str, datetime | None]:
    """Return where reading starts and ends."""
    words = {TRIM_HORIZON: TRIM_HORIZON, "EARLIEST": TRIM_HORIZON, LATEST: LATEST}
    start = _position(options, "initialPosition", words)
    end = _position(options, "endingPosition", {LATEST: LATEST})
    if start == LATEST and not isinstance(end, datetime):
        raise options.invalid(
            "initialPosition",
            "begins after all existing records, so there is nothing to read: give TRIM_HORIZON, an instant, or an "
            "endingPosition in the future",
        )
    if isinstance(start, datetime) and isinstance(end, datetime) and start >= end:
        raise options.invalid("initialPosition", f"must be before endingPosition ({options.text('endingPosition')!r})")
    return start or TRIM_HORIZON, end if isinstance(end, datetime) else None


def _position(options: _OptionValues, name: str, words: Mapping[str, str]) -> datetime | str | None:
    text = options.text(name)
    if text is None:
        return None
    if text.upper() in words:
        return words[text.upper()]
    instant = text
    if text.startswith("{"):
        position = _json(text)
        if not isinstance(position, dict) or [key.lower() for key in position] != ["at_timestamp"]:
            raise options.invalid(name, f'must be {{"at_timestamp": ...}} with {_INSTANT}; a format is not accepted')
        instant = str(next(iter(position.values())))
    elif text.upper().startswith(AT_TIMESTAMP):
        instant = text[len(AT_TIMESTAMP) :].lstrip(" :")
    parsed = aware_instant(instant)
    if parsed is None:
        raise options.invalid(name, f"must be {', '.join(words)} or {_INSTANT}")
    return parsed


def _ranges(options: _OptionValues) -> tuple[ShardNumbers, ...]:
    text = options.text("shardRanges")
    if text is None:
        return ()
    by_shard = _json(text)
    if not isinstance(by_shard, dict) or not by_shard:
        raise options.invalid("shardRanges", f"must be a JSON object, like {_RANGES}")
    ranges = []
    for shard, numbers in by_shard.items():
        if not isinstance(numbers, dict) or not numbers or not set(numbers) <= {"start", "end"}:
            raise options.invalid("shardRanges", f"must give 'start', 'end' or both for {shard!r}, like {_RANGES}")
        first, last = (_number(options, shard, field, numbers.get(field)) for field in ("start", "end"))
        if first is not None and last is not None and int(first) > int(last):
            raise options.invalid("shardRanges", f"has the start of {shard!r} after its end: exchange the two")
        ranges.append(ShardNumbers(shard_id=shard, start=first, end=last))
    return tuple(ranges)


def _number(options: _OptionValues, shard: str, field: str, value: Any) -> str | None:
    text = str(value)
    if value is not None and (isinstance(value, bool | float) or not is_number(text)):
        raise options.invalid(
            "shardRanges", f"has {value!r} as {field!r} of {shard!r}: give a sequence number in decimal digits"
        )
    return None if value is None else str(int(text))


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
