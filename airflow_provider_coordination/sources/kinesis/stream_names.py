"""How streams are named: by name, by ARN, or by what their names and tags have in common.

A stream of another account can be named by its ARN only. Then every call that reads or lists it gives the ARN, and the
resource policy of the stream decides. The partitions of a stream have its name, however it is given.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.kinesis.client import (
    KinesisClient,
    QuotaExceededError,
    StreamNotFoundError,
    kinesis_errors,
)

log = logging.getLogger(__name__)

_NAME = r"[A-Za-z0-9_.-]{1,128}"
_ARN_PATTERN = rf"arn:aws[a-z-]*:kinesis:(?P<region>[a-z0-9-]+):(?P<account>\d{{12}}):stream/(?P<name>{_NAME})"
_ARN = re.compile(_ARN_PATTERN)
_TABLE_ARN = re.compile(
    r"arn:aws[a-z-]*:dynamodb:(?P<region>[a-z0-9-]+):(?P<account>\d{12}):table/(?P<name>[A-Za-z0-9_.-]{3,255})"
    r"(/stream/(?P<label>[^/]+))?"
)
_CONSUMER_ARN = re.compile(rf"(?P<stream>{_ARN_PATTERN})/consumer/{_NAME}:\d+")
EXAMPLE_ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/clicks"
QUOTA_PAUSE_SECONDS = 1.5
QUOTA_TRIES = 50
"""How often a call is made while its quota is exceeded, as in the Kinesis Client Library."""


@dataclass(frozen=True)
class StreamArn:
    """The parts of a stream's ARN.

    :param region: the region of the stream.
    :param account: the account that owns it, twelve digits.
    :param name: its name.
    """

    region: str
    account: str
    name: str


def is_arn(text: str) -> bool:
    """Return whether a text is meant to be an ARN and not a name, which contains no colon."""
    return text.startswith("arn:")


def arn_parts(text: str) -> StreamArn | None:
    """Return the parts of the ARN of a stream, or of a table with its stream; None if the text is none."""
    found = _ARN.fullmatch(text) or _TABLE_ARN.fullmatch(text)
    return None if found is None else StreamArn(found["region"], found["account"], found["name"])


def stream_of_consumer(arn: str) -> str | None:
    """Return the ARN of the stream in the ARN of one of its consumers; None if the text is none."""
    found = _CONSUMER_ARN.fullmatch(arn)
    return None if found is None else found["stream"]


def stream_name(stream: str) -> str:
    """Return the name of a stream that is given by its name or ARN."""
    parts = arn_parts(stream)
    return stream if parts is None else parts.name


def stream_of(partition_key: str) -> str:
    """Return the name of the stream of a shard's partition, or of the table of a partition of its history."""
    return re.split("[:/]", partition_key, maxsplit=1)[0]


def naming(stream: str) -> dict[str, str]:
    """Return the parameter with which a call names a stream.

    :param stream: its name or ARN.
    """
    return {"StreamARN" if is_arn(stream) else "StreamName": stream}


def naming_read(stream: str) -> dict[str, str]:
    """Return the parameter with which GetRecords names a stream; none for a name, for which the iterator stands."""
    return naming(stream) if is_arn(stream) else {}


def split_consumer(text: str) -> tuple[str, str | None]:
    """Return the stream and the consumer in `<stream>:<consumer>`, each by its name or ARN; None without a consumer."""
    found = re.match(rf"{_ARN_PATTERN}(?=:|$)", text)
    stream = found[0] if found else text.partition(":")[0]
    return stream, text[len(stream) + 1 :] or None


@dataclass(frozen=True)
class StreamService:
    """A client, and how to name the streams of a source to it.

    :param client: as `kinesis_client` returns it.
    :param streams: the streams as the user gave them, by name or ARN.
    """

    client: KinesisClient
    streams: tuple[str, ...] = ()

    def address(self, name: str) -> str:
        """Return the ARN of a stream if the user gave it, otherwise its name."""
        return next((stream for stream in self.streams if stream_name(stream) == name), name)


@dataclass(frozen=True, kw_only=True)
class FoundStreams:
    """The streams of an account and region at one time.

    :param matching: the names of those that were searched for.
    :param existing: the names of all.
    """

    matching: tuple[str, ...]
    existing: frozenset[str]


@dataclass(frozen=True)
class StreamSearch:
    """What the streams of a source have in common; without a pattern and tags, no stream is searched for.

    :param name_pattern: the pattern of their names, with `*`, `?` and `[…]`; None for any name.
    :param tags: the tags of each of them, with their values.
    """

    name_pattern: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.name_pattern is not None or bool(self.tags)

    def __str__(self) -> str:
        named = [] if self.name_pattern is None else [f"name {self.name_pattern!r}"]
        return " and ".join([*named, *(f"tag {name}={value}" for name, value in sorted(self.tags.items()))])

    def find(self, client: KinesisClient, *, sleep: Callable[[float], None] = time.sleep) -> FoundStreams:
        """Search the account and region of a client.

        It costs a call for each 100 streams. With tags, it also costs a call for each stream whose name matches.

        :param client: as `kinesis_client` returns it.
        :param sleep: waits that many seconds.
        :raises SourceError: if Kinesis is unavailable.
        :raises ConfigurationError: if the calls are not allowed.
        """
        existing = list(_names(client, sleep))
        named = [name for name in existing if self.name_pattern is None or fnmatchcase(name, self.name_pattern)]
        matching = [name for name in named if not self.tags or self._has_tags(client, name, sleep)]
        if not matching:
            log.warning("no stream in region %s has %s", client.meta.region_name, self)
        return FoundStreams(matching=tuple(matching), existing=frozenset(existing))

    def _has_tags(self, client: KinesisClient, name: str, sleep: Callable[[float], None]) -> bool:
        try:
            return self.tags.items() <= dict(_tags(client, name, sleep)).items()
        except StreamNotFoundError:
            return False  # it was deleted since it was listed


def all_streams(client: KinesisClient, settings: Mapping[str, Any]) -> Sequence[str]:
    """Return the streams that the settings of a source name or search for; the latter by name.

    :param client: as `kinesis_client` returns it.
    :param settings: as `KinesisStreams.to_mapping` writes them.
    """
    given = tuple(settings["streams"])
    search = StreamSearch(settings.get("name_pattern"), settings.get("tags") or {})
    return with_found(given, search.find(client).matching) if search else given


def with_found(given: Iterable[str], found: Iterable[str]) -> tuple[str, ...]:
    """Return streams with those that were found and are not among them."""
    streams = tuple(given)
    names = set(map(stream_name, streams))
    return (*streams, *(name for name in found if name not in names))


def check_streams(streams: Iterable[str]) -> str | None:
    """Return what is wrong with the names and ARNs of a source's streams, and the remedy; None if nothing is."""
    arns: list[StreamArn] = []
    by_name: dict[str, str] = {}
    for stream in streams:
        parts = arn_parts(stream) if _ARN.fullmatch(stream) else None
        if is_arn(stream) and parts is None:
            return f"has {stream!r}, which is not the ARN of a stream; give one like {EXAMPLE_ARN}"
        if not is_arn(stream) and not re.fullmatch(_NAME, stream):
            return f"has {stream!r}; give a name of 1 to 128 letters, digits, '_', '.' and '-', or an ARN"
        arns += [] if parts is None else [parts]
        name = stream_name(stream)
        if name in by_name:
            return (
                f"names stream {name!r} twice, as {by_name[name]!r} and {stream!r}: the partitions of a source have "
                "the names of its streams; give each of two streams of one name its own source"
            )
        by_name[name] = stream
    if len(regions := sorted({arn.region for arn in arns})) > 1:
        return f"has ARNs of the regions {', '.join(regions)}; give each region its own source"
    return None


def region_of(streams: Iterable[str]) -> str | None:
    """Return the region that the ARNs among the streams name; None if there is none."""
    return next((arn.region for arn in map(arn_parts, streams) if arn is not None), None)


def account_of(arn: str) -> str | None:
    """Return the account in a stream's ARN; None if it is none."""
    parts = arn_parts(arn)
    return None if parts is None else parts.account


def check_account(source: str, stream: str, before: str | None, now: str | None) -> None:
    """Check that a stream belongs to the account whose stream of that name the source has read so far.

    :param before: the account so far; None if unknown.
    :param now: the account of the stream that is found now; None if unknown.
    :raises ConfigurationError: if the accounts differ. Their streams have different records.
    """
    if None not in (before, now) and before != now:
        raise ConfigurationError(
            f"stream {stream!r} of source {source!r} belongs to account {before} so far, and the credentials or the "
            f"ARN now lead to account {now}; correct them, or give the other stream its own source"
        )


def _names(client: KinesisClient, sleep: Callable[[float], None]) -> Iterator[str]:
    request: dict[str, Any] = {}
    while True:
        page = within_quota(partial(client.list_streams, **request), client, "*", sleep)
        names: Collection[str] = page["StreamNames"]
        yield from names
        if not page.get("HasMoreStreams") or not names:
            return
        token = page.get("NextToken")
        request = {"NextToken": token} if token else {"ExclusiveStartStreamName": list(names)[-1]}


def _tags(client: KinesisClient, name: str, sleep: Callable[[float], None]) -> Iterator[tuple[str, str]]:
    request: dict[str, Any] = {"StreamName": name}
    while True:
        page = within_quota(partial(client.list_tags_for_stream, **request), client, name, sleep)
        for tag in page["Tags"]:
            yield tag["Key"], tag.get("Value") or ""
        if not page.get("HasMoreTags") or not page["Tags"]:
            return
        request = {"StreamName": name, "ExclusiveStartTagKey": page["Tags"][-1]["Key"]}


def within_quota(
    call: Callable[[], Mapping[str, Any]], client: KinesisClient, stream: str, sleep: Callable[[float], None]
) -> Mapping[str, Any]:
    """Make a call; wait while its quota is exceeded, as the Kinesis Client Library does.

    :param call: makes it.
    :param client: the client that makes it.
    :param stream: the stream that it concerns, for errors.
    :param sleep: waits that many seconds.
    :raises QuotaExceededError: if the quota stays exceeded for `QUOTA_TRIES` calls.
    """
    tries = 1
    while True:
        try:
            with kinesis_errors(client, stream):
                return call()
        except QuotaExceededError as error:
            if tries == QUOTA_TRIES:
                raise
            tries += 1
            log.warning("%s; trying again in %.1f s", error, QUOTA_PAUSE_SECONDS)
            sleep(QUOTA_PAUSE_SECONDS)
