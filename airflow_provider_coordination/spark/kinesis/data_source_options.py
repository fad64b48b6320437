"""The options of the data source: their names, their other spellings, and what each value means.

Spark hands options over as text, with names whose case does not matter. Connectors of others spell some of them in
their own way; each spelling is the same option here, and `kinesis.` may stand before any of them.
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
from airflow_provider_coordination.sources.kinesis.positions import AT_TIMESTAMP, LATEST, TRIM_HORIZON
from airflow_provider_coordination.spark.job_settings import LEAST_SLOT_MEMORY_BYTES, RoundSettings

FORMAT = "coordinated_kinesis"
"""The name of the data source, for `spark.read.format`."""
PREFIX = "kinesis."
"""May stand before the name of every option."""
MOST_RECORDS_PER_FETCH = 10_000
"""What Kinesis returns at most for one read."""

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
_ARN = re.compile(r"arn:[^:]+:kinesis:([^:]+):\d{12}:stream/([^/]+)")
_INSTANT = "an instant with a time zone, such as 2026-01-01T00:00:00Z"
_RANGES = '{"shardId-000000000000": {"start": "495...", "end": "496..."}}'


@dataclass(frozen=True, kw_only=True)
class ShardNumbers:
    """The part of a shard that is read, by sequence numbers.

    :param shard_id: the shard.
    :param start: the number of the first Kinesis record; None for the beginning of the read.
    :param end: the number of the last one; None for the end of the read.
    """

    shard_id: str
    start: str | None = None
    end: str | None = None


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """What is read, and how.

    :param streams: the names of the streams.
    :param stream_arn: which the only stream must have; None for any.
    :param kinesis: how to reach Kinesis.
    :param start: read what arrived at this instant (aware) or later; `TRIM_HORIZON` for all that is kept, `LATEST` for
        what arrives after the read has begun.
    :param end: read what arrived before this instant (aware); None for what is there when the frame is made.
    :param shard_ids: the only shards to read; none for all.
    :param ranges: what is read of each shard; none where instants say so.
    :param consumer_name: the consumer to read as by enhanced fan-out; None polls.
    :param page_records: how many records are asked for at once.
    :param shards_per_task: how many shards one task reads at the same time; None to give each processor a task.
    :param slot_memory_bytes: how much of what it reads a task holds at most.
    :param fail_on_data_loss: whether records that are gone fail the read.
    """

    streams: tuple[str, ...]
    kinesis: AwsSettings
    stream_arn: str | None = None
    start: datetime | str = TRIM_HORIZON
    end: datetime | None = None
    shard_ids: tuple[str, ...] = ()
    ranges: tuple[ShardNumbers, ...] = ()
    consumer_name: str | None = None
    page_records: int = MOST_RECORDS_PER_FETCH
    shards_per_task: int | None = None
    slot_memory_bytes: int = RoundSettings.slot_memory_bytes
    fail_on_data_loss: bool = True


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Return what the options say.

    :param given: as Spark hands them over.
    :raises ConfigurationError: naming the option, the value and the remedy; secrets are not shown.
    """
    options = _Given(given)
    streams, stream_arn, region = _streams(options)
    shard_ids = options.names("shardIds")
    ranges = _ranges(options)
    if len(streams) > 1 and (shard_ids or ranges):
        name = "shardIds" if shard_ids else "shardRanges"
        raise options.refused(name, f"names shards of one stream, and {len(streams)} are read: read each by itself")
    if shard_ids and ranges:
        raise options.refused("shardIds", "is given with shardRanges, which names the shards itself: leave one out")
    start, end = _window(options)
    mode = options.one_of(
        "consumerMode", {"polling": "polling", "getrecords": "polling", "efo": "efo", "subscribetoshard": "efo"}
    )
    consumer = options.text("consumerName")
    if mode == "efo" and consumer is None:
        raise options.refused("consumerMode", "needs consumerName: name the consumer to read as")
    if mode != "efo" and consumer is not None:
        raise options.refused("consumerName", "is for enhanced fan-out: give consumerMode=efo, or leave it out")
    return ReadOptions(
        streams=streams,
        stream_arn=stream_arn,
        kinesis=_access(options, region),
        start=start,
        end=end,
        shard_ids=shard_ids,
        ranges=ranges,
        consumer_name=consumer,
        page_records=options.number("maxRecordsPerFetch", ReadOptions.page_records, 1, MOST_RECORDS_PER_FETCH),
        shards_per_task=options.number("shardsPerTask", 0, 1) or None,
        slot_memory_bytes=options.number("slotMemoryBytes", ReadOptions.slot_memory_bytes, LEAST_SLOT_MEMORY_BYTES),
        fail_on_data_loss=options.one_of("failOnDataLoss", {"true": "true", "false": "false"}) != "false",
    )


class _Given:
    """The options of a read, by name.

    :raises ConfigurationError: if one is unknown, or given twice.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values: dict[str, str] = {}
        self._spelled: dict[str, str] = {}
        for key, value in options.items():
            name, spelling = _known(key)
            if name in self._values:
                raise ConfigurationError(
                    f"{FORMAT}: options '{self._spelled[name]}' and '{spelling}' are the same one: give it once"
                )
            self._values[name], self._spelled[name] = value.strip(), spelling

    def text(self, name: str) -> str | None:
        """Return an option's value; None if it is not given, or empty."""
        return self._values.get(name) or None

    def names(self, name: str) -> tuple[str, ...]:
        """Return the parts of a list with commas, each once."""
        parts = [part.strip() for part in (self.text(name) or "").split(",") if part.strip()]
        if double := next((part for n, part in enumerate(parts) if part in parts[:n]), None):
            raise self.refused(name, f"names {double!r} twice: name each once")
        return tuple(parts)

    def number(self, name: str, default: int, least: int, most: int | None = None) -> int:
        """Return a whole number within bounds."""
        text = self.text(name)
        if text is None:
            return default
        value = int(text) if text.isascii() and text.isdigit() else -1
        if value < least or (most is not None and value > most):
            upper = f" to {most}" if most is not None else " or more"
            raise self.refused(name, f"must be a whole number, {least}{upper}")
        return value

    def one_of(self, name: str, meanings: Mapping[str, str]) -> str | None:
        """Return what a word means; None if none is given."""
        text = self.text(name)
        if text is None:
            return None
        if text.lower() not in meanings:
            raise self.refused(name, f"must be one of {', '.join(dict.fromkeys(meanings.values()))}")
        return meanings[text.lower()]

    def refused(self, name: str, why: str) -> ConfigurationError:
        """Return the error that refuses an option's value.

        :param why: what is wrong, and the remedy.
        """
        value = self.text(name)
        shown = "" if value is None else " ('***')" if name in _SECRETS else f" ({value!r})"
        return ConfigurationError(f"{FORMAT}: option '{self._spelled.get(name, name)}'{shown} {why}")


def _known(key: str) -> tuple[str, str]:
    """Return the name of an option, and how it is spelled."""
    lower = key.lower()
    found = _BY_SPELLING.get(lower) or _BY_SPELLING.get(lower.removeprefix(PREFIX))
    if found is not None:
        return found[0], (PREFIX if lower.startswith(PREFIX) else "") + found[1]
    near = difflib.get_close_matches(lower.removeprefix(PREFIX), _BY_SPELLING, n=1, cutoff=0.0)
    raise ConfigurationError(
        f"{FORMAT}: option '{key}' is unknown; the nearest is '{_BY_SPELLING[near[0]][1]}'. "
        f"There are: {', '.join(OPTIONS)}"
    )


def _streams(options: _Given) -> tuple[tuple[str, ...], str | None, str | None]:
    """Return the streams, the ARN of the only one if that is given, and the region that it names."""
    names, arn = options.names("streamName"), options.text("streamARN")
    if names and arn is not None:
        raise options.refused("streamARN", "is given with streamName: leave one out")
    if arn is not None:
        parts = _ARN.fullmatch(arn)
        if parts is None:
            raise options.refused("streamARN", "must be like arn:aws:kinesis:eu-west-1:123456789012:stream/clicks")
        return (parts[2],), arn, parts[1]
    if not names:
        raise ConfigurationError(f"{FORMAT}: option 'streamName' is missing: name the stream, or several with commas")
    return names, None, None


def _access(options: _Given, region: str | None) -> AwsSettings:
    endpoint = options.text("endpointUrl")
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        raise options.refused("endpointUrl", "must begin with http:// or https://")
    named = _ENDPOINT.fullmatch(endpoint or "")
    role = options.text("roleArn")
    if role is not None and not role.startswith("arn:"):
        raise options.refused("roleArn", "must be an ARN, like arn:aws:iam::123456789012:role/reader")
    for name, other in (
        ("awsAccessKey", "awsSecretKey"),
        ("awsSecretKey", "awsAccessKey"),
        ("awsSessionToken", "awsAccessKey"),
        ("roleExternalId", "roleArn"),
        ("roleSessionName", "roleArn"),
    ):
        if options.text(name) and not options.text(other):
            raise options.refused(name, f"needs {other}: give both, or neither")
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


def _window(options: _Given) -> tuple[datetime | str, datetime | None]:
    """Return where reading begins, and where it ends."""
    words = {TRIM_HORIZON: TRIM_HORIZON, "EARLIEST": TRIM_HORIZON, LATEST: LATEST}
    start = _position(options, "initialPosition", words)
    end = _position(options, "endingPosition", {LATEST: LATEST})
    if start == LATEST and not isinstance(end, datetime):
        raise options.refused(
            "initialPosition",
            "begins after all that is there, and so leaves nothing to read: give TRIM_HORIZON, an instant, or an "
            "endingPosition that lies ahead",
        )
    if isinstance(start, datetime) and isinstance(end, datetime) and start >= end:
        raise options.refused("initialPosition", f"must be before endingPosition ({options.text('endingPosition')!r})")
    return start or TRIM_HORIZON, end if isinstance(end, datetime) else None


def _position(options: _Given, name: str, words: Mapping[str, str]) -> datetime | str | None:
    text = options.text(name)
    if text is None:
        return None
    if text.upper() in words:
        return words[text.upper()]
    instant = text
    if text.startswith("{"):
        found = _json(text)
        if not isinstance(found, dict) or [key.lower() for key in found] != ["at_timestamp"]:
            raise options.refused(name, f'must be {{"at_timestamp": ...}} with {_INSTANT}; a format is not taken')
        instant = str(next(iter(found.values())))
    elif text.upper().startswith(AT_TIMESTAMP):
        instant = text[len(AT_TIMESTAMP) :].lstrip(" :")
    try:
        parsed = datetime.fromisoformat(instant.strip())
    except ValueError:
        parsed = None
    if parsed is None or parsed.tzinfo is None:
        raise options.refused(name, f"must be {', '.join(words)} or {_INSTANT}")
    return parsed


def _ranges(options: _Given) -> tuple[ShardNumbers, ...]:
    text = options.text("shardRanges")
    if text is None:
        return ()
    given = _json(text)
    if not isinstance(given, dict) or not given:
        raise options.refused("shardRanges", f"must be a JSON object, like {_RANGES}")
    found = []
    for shard, numbers in given.items():
        if not isinstance(numbers, dict) or not numbers or not set(numbers) <= {"start", "end"}:
            raise options.refused("shardRanges", f"must give 'start', 'end' or both of {shard!r}, like {_RANGES}")
        first, last = (_number(options, shard, field, numbers.get(field)) for field in ("start", "end"))
        if first is not None and last is not None and int(first) > int(last):
            raise options.refused("shardRanges", f"has {shard!r} start after its end: exchange the two")
        found.append(ShardNumbers(shard_id=shard, start=first, end=last))
    return tuple(found)


def _number(options: _Given, shard: str, field: str, given: Any) -> str | None:
    text = str(given)
    if given is not None and (isinstance(given, bool | float) or not (text.isascii() and text.isdigit())):
        raise options.refused(
            "shardRanges", f"has {given!r} as {field!r} of {shard!r}: give a sequence number in decimal digits"
        )
    return None if given is None else str(int(text))


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
