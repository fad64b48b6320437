"""Targets and plans of resets, for every kind of source: where partitions are read from, and what happens to each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import Partition, format_instant

EARLIEST = "earliest"
"""Everything that a partition still holds."""
LATEST = "latest"
"""Only what arrives from now on."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where partitions are to be read from: their start, if neither an instant nor a position is given.

    :param name: as the user wrote it.
    :param requested_at: when the reset was requested (aware); the epoch of what is reset is made of it.
    :param instant: read what arrived at this instant (aware, UTC) or later.
    :param position: a position in the form of the partition's source; its kind validates it.
    :param is_latest: whether everything that exists already is skipped.
    """

    name: str
    requested_at: datetime
    instant: datetime | None = None
    position: str | None = None
    is_latest: bool = False

    @property
    def epoch(self) -> int:
        """The lowest epoch of what is reset: no lease that was cleaned up before the request had a greater one."""
        return int(self.requested_at.timestamp())

    @property
    def is_earliest(self) -> bool:
        """Whether everything is read that the source still has."""
        return self.instant is None and self.position is None

    def __str__(self) -> str:
        """Return the position; for `"latest"`, the instant."""
        return self.position or (EARLIEST if self.instant is None else format_instant(self.instant))


def parse_target(to: datetime | str, now: datetime) -> Target:
    """Parse the target of a reset.

    :param to: `"earliest"`, `"latest"`, an instant (aware, or its ISO 8601 text), or a position in the form of the
        source, after which reading continues.
    :param now: the present instant (aware): the meaning of `"latest"`.
    :raises ConfigurationError: if the text is empty, or an instant lies before 1970 or in the future.
    """
    text = to.isoformat() if isinstance(to, datetime) else str(to).strip()
    if not text:
        raise invalid_position(text, "a position of the source's own")
    if text.lower() == EARLIEST:
        return Target(name=EARLIEST, requested_at=now)
    if text.lower() == LATEST:
        return Target(name=LATEST, requested_at=now, instant=now.astimezone(UTC), is_latest=True)
    instant = _instant(text)
    if instant is None:
        return Target(name=text, requested_at=now, position=text)
    return Target(name=text, requested_at=now, instant=checked_instant(instant, text, now))


def checked_instant(instant: datetime, text: str, now: datetime) -> datetime:
    """Return an instant (aware) in UTC.

    :param text: as the user wrote it.
    :raises ConfigurationError: if it lies before 1970 or in the future.
    """
    if instant < datetime(
        1970, 1, 1, tzinfo=UTC
    ):  # compared in its own zone: near the year 1, an instant may not exist in UTC
        raise ConfigurationError(f"position {text!r} lies before 1970; give 'earliest' to read everything")
    if instant > now:
        raise ConfigurationError(
            f"position {text!r} lies in the future, now is {format_instant(now)}; give 'latest' to read what arrives "
            "from now on"
        )
    return instant.astimezone(UTC)


def invalid_position(text: str, own: str) -> ConfigurationError:
    """Return the error for a text that is not a position.

    :param own: a description of the source's own positions, such as `a sequence number in decimal digits`.
    """
    return ConfigurationError(
        f"position {text!r} is neither 'earliest', 'latest', an instant with a time zone such as "
        f"'2026-01-01T00:00:00Z', nor {own}"
    )


def _instant(text: str) -> datetime | None:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if instant.tzinfo is None else instant


def _as_it_is(partition: Partition) -> Mapping[str, Any]:
    return partition.progress


@dataclass(frozen=True, kw_only=True)
class Reread:
    """What a reset reads again of a partition: what was delivered after the position.

    :param partition_key: the partition.
    :param until: the position up to which it was delivered.
    :param span: the time within which that arrived; None if unknown.
    :param bytes: its approximate size; None if unknown.
    """

    partition_key: str
    until: str
    span: timedelta | None = None
    bytes: int | None = None


class ResetAction(StrEnum):
    """What is done to a partition."""

    RESET = "reset"
    """It is read again."""
    CREATE = "created"
    """Its lease was cleaned up; it is created and read again."""
    REMOVE = "removed"
    """It is created again when the partition that it came from is finished, such as the parent of a shard."""


@dataclass(frozen=True, kw_only=True)
class ResetStep:
    """What happens to one partition.

    :param action: what is done.
    :param partition: as it was read, or as it will be created.
    :param progress: returns the progress to start from, given the partition at that time.
    :param group: the group that it belongs to; if a reset in a group fails, nothing of the group is removed.
    """

    action: ResetAction
    partition: Partition
    progress: Callable[[Partition], Mapping[str, Any]] = _as_it_is
    group: str | None = None


@dataclass(frozen=True, kw_only=True)
class ResetPlan:
    """What happens to the partitions that a user names.

    :param target: where they are read from.
    :param steps: in the order in which they are done.
    :param left: the keys of the partitions that stay as they are, and the reason for each.
    :param warnings: for the user.
    """

    target: Target
    steps: tuple[ResetStep, ...]
    left: Mapping[str, str]
    warnings: tuple[str, ...] = ()

    def of(self, action: ResetAction) -> list[Partition]:
        """Return the partitions that get this action."""
        return [step.partition for step in self.steps if step.action is action]
