"""The bodies of requests, and what the routes return about partitions, their owners and what a kind of source adds.

A reason is required for every action.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Protocol

from fastapi import APIRouter
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StringConstraints,
    field_serializer,
    field_validator,
)

from airflow_provider_coordination.coordination.browsing import state_of
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.history import Holding, Transition
from airflow_provider_coordination.coordination.partition import (
    AWAITING_SUFFIX,
    Partition,
    PartitionFacts,
    check_partition_key,
)
from airflow_provider_coordination.coordination.partition_actions import actions_for
from airflow_provider_coordination.coordination.registry import import_attribute
from airflow_provider_coordination.coordination.workers import task_of
from airflow_provider_coordination.sources.kinds import KINDS, get_kind, inspect_partition, known_kind
from airflow_provider_coordination.sources.reset_targets import EARLIEST
from airflow_provider_coordination.sources.source_kind import Inspection

MAX_REASON_CHARACTERS = 500
MAX_PARTITIONS_AT_ONCE = 500

NO_NUL = r"^[^\x00]*$"
"""What every store accepts."""


def _usable_key(text: str) -> str:
    try:
        check_partition_key(text)
    except ConfigurationError as error:
        raise ValueError(str(error)) from None
    return text


Key = Annotated[str, AfterValidator(_usable_key)]
"""A key of a partition or of another item that every store accepts."""

Reason = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_REASON_CHARACTERS)]
Position = Annotated[str, StringConstraints(min_length=1, max_length=200)]
"""A target position of a reset: `earliest`, `latest`, an instant or a sequence number."""


class ReasonBody(BaseModel):
    """The reason for an action."""

    model_config = ConfigDict(extra="forbid")

    reason: Reason


class PartitionVersion(BaseModel):
    """A partition and the version of it that the user saw."""

    model_config = ConfigDict(extra="forbid")

    key: Key
    version: StrictInt


class ActionBody(ReasonBody):
    """An action on partitions.

    :param partitions: the partitions, each with the version that the user saw.
    :param to: the target position of a `reset`.
    """

    partitions: Annotated[list[PartitionVersion], Field(min_length=1, max_length=MAX_PARTITIONS_AT_ONCE)]
    to: Position | None = None

    @field_validator("partitions")
    @classmethod
    def _each_once(cls, partitions: list[PartitionVersion]) -> list[PartitionVersion]:
        if len({item.key for item in partitions}) < len(partitions):
            raise ValueError("a key occurs twice; send each partition once")
        return partitions


class SuspendBody(ReasonBody):
    """The reason for a suspension. `new_source` allows a source that the store does not know yet."""

    new_source: StrictBool = False


class ResumeBody(ReasonBody):
    """The reason to resume a source. `since` is the start of the suspension that the user saw."""

    since: AwareDatetime | None = None


class SubmitBody(ReasonBody):
    """A spec, and why it is submitted.

    `replacing` is the version that it was made from. If another version is in effect, it stays. The spec is checked
    against the source first unless `connect` is false.
    """

    spec: dict[str, Any]
    replacing: StrictInt | None = None
    connect: StrictBool = True


class ResetAllBody(ReasonBody):
    """The target position of a reset of every source, and the reason."""

    to: Position = EARLIEST


class ResetBody(ResetAllBody):
    """The target position of a reset of a source, or of each partition in `positions`, and the reason.

    With `forget`, all partitions of a suspended or terminated supervisor are removed instead.
    """

    forget: StrictBool = False
    positions: Annotated[dict[str, Position] | None, Field(min_length=1, max_length=MAX_PARTITIONS_AT_ONCE)] = None


class ReleaseBody(BaseModel):
    """The body of a release.

    :param positive: whether the data arrived.
    :param handle: the handle to release; optional if the set has one handle that is released from outside.
    :param reason: why the batch is rejected; required if `positive` is false.
    :param release_id: the identity of the release, which a repeated call repeats; the handle's name by default.
    :param version: the version of the set that the caller saw. If the set has changed since, nothing is released.
    """

    model_config = ConfigDict(extra="forbid")

    positive: StrictBool
    handle: str | None = None
    reason: str | None = None
    release_id: str | None = None
    version: StrictInt | None = None


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The owner of a lease. All fields but `name` are null if the owner is not a task."""

    name: str
    host: str | None = None
    dag_id: str | None = None
    run_id: str | None = None
    task_id: str | None = None
    map_index: int | None = None
    try_number: int | None = None


def owner_of(name: str) -> Owner:
    """Return an owner with its task. The owner of a partition that awaits acknowledgment keeps the task of its job."""
    task = task_of(name.removesuffix(AWAITING_SUFFIX))
    if task is None:
        return Owner(name=name)
    return Owner(name=name, host=name.partition(":")[0], **task._asdict())


def known_owner(name: str | None) -> Owner | None:
    """Return an owner; None if there is none."""
    return None if name is None else owner_of(name)


@dataclass(frozen=True, kw_only=True)
class PartitionRow(PartitionFacts, Inspection):
    """The summary of a partition.

    :param state: its state now.
    :param leased_until: when its lease ends (aware); None unless it is leased.
    :param has_positions: whether it can be reset to another position than its start.
    :param actions: the names of the actions that apply to it now.
    """

    state: str
    leased_until: datetime | None
    has_positions: bool
    actions: list[str]

    @field_serializer("owner")
    def _owner(self, name: str | None) -> Owner | None:
        return known_owner(name)


def row_of(partition: Partition, now: datetime) -> PartitionRow:
    """Return the summary of a partition.

    :param partition: the partition.
    :param now: the current time (aware).
    """
    kind = known_kind(partition)
    facts = {each.name: getattr(partition, each.name) for each in fields(PartitionFacts)}
    return PartitionRow(
        **facts | {"reopen_at": None if partition.is_parked else partition.reopen_at},
        **vars(inspect_partition(partition, now)),
        state=state_of(partition, now).value,
        leased_until=partition.ownership_timeout,
        has_positions=kind is not None and kind.has_positions,
        actions=actions_for(partition, now),
    )


@dataclass(frozen=True, kw_only=True)
class TransitionFacts(Transition):
    """A change of a partition's status or owner. `status` is null if the partition was deleted."""

    @field_serializer("owner", "previous_owner")
    def _owner(self, name: str | None) -> Owner | None:
        return known_owner(name)


@dataclass(frozen=True, kw_only=True)
class HoldingFacts(Holding):
    """A time during which one owner held a partition. `began_at` is null if the history no longer has it."""

    @field_serializer("owner")
    def _owner(self, name: str) -> Owner:
        return owner_of(name)


log = logging.getLogger(__name__)


class KindPages(Protocol):
    """The pages and routes of one kind of source."""

    @property
    def names(self) -> Sequence[str]:
        """The pages that its sources have in addition to those of every source."""
        ...

    def router(self) -> APIRouter:
        """Return its routes."""
        ...

    def details(self, partition: Partition, now: datetime) -> Mapping[str, Any]:
        """Return the details that only partitions of this kind have.

        :param partition: the partition.
        :param now: the current time (aware).
        """
        ...


def routers_of_kinds() -> Iterator[APIRouter]:
    """Yield the routes of every kind that has some, once each. A kind that cannot be imported is logged and skipped."""
    for pages in dict.fromkeys(map(pages_of, KINDS.names())):
        if pages is not None:
            yield pages.router()


@cache
def pages_of(kind: str) -> KindPages | None:
    """Return the pages of a kind of source; None if it has none, or the kind is unknown."""
    try:
        if kind not in KINDS.names() or (where := get_kind(kind).pages) is None:
            return None
        pages: KindPages = import_attribute(where, f"pages of the kind of source {kind!r}, {where!r}")
    except ConfigurationError as error:
        log.error("%s", error)
        return None
    return pages


def pages_named(kind: str | None) -> list[str]:
    """Return the names of the pages that sources of a kind have in addition to those of every source."""
    pages = None if kind is None else pages_of(kind)
    return [] if pages is None else list(pages.names)


def details_of(partition: Partition, now: datetime) -> dict[str, Any]:
    """Return the details of a partition that its kind adds."""
    kind = known_kind(partition)
    pages = None if kind is None else pages_of(kind.name)
    return {} if pages is None else dict(pages.details(partition, now))
