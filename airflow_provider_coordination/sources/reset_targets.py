"""Where a person wants partitions to be read from, and what becomes of each: for every kind of source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import Partition, format_instant

EARLIEST = "earliest"
"""Everything that a partition still holds."""
LATEST = "latest"
"""What comes from now on."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where partitions are to be read from: the beginning, if neither an instant nor a position is given.

    :param name: as a person says it.
    :param asked_at: when it was asked for (aware); makes the epoch of what is reset.
    :param instant: from what arrived at this instant (aware, UTC) on.
    :param position: as the partition's source writes its positions; its kind says whether it is one.
    :param is_latest: whether nothing that is there already is wanted.
    """

    name: str
    asked_at: datetime
    instant: datetime | None = None
    position: str | None = None
    is_latest: bool = False

    @property
    def epoch(self) -> int:
        """The least epoch of what is reset: no lease that was cleaned up since had one that is greater."""
        return int(self.asked_at.timestamp())

    @property
    def is_earliest(self) -> bool:
        """Whether everything is wanted that is still there."""
        return self.instant is None and self.position is None

    def __str__(self) -> str:
        """Say where that is; of `"latest"`, since when."""
        return self.position or (EARLIEST if self.instant is None else format_instant(self.instant))


def target_of(to: datetime | str, now: datetime) -> Target:
    """Return where partitions are to be read from.

    :param to: `"earliest"`, `"latest"`, an instant (aware, or its ISO 8601 text), or a position as the source writes
        it, after which reading goes on.
    :param now: the present instant (aware): what `"latest"` means.
    :raises ConfigurationError: if nothing is said, or an instant lies before 1970 or in the future.
    """
    text = to.isoformat() if isinstance(to, datetime) else str(to).strip()
    if not text:
        raise not_a_position(text, "a position of the source's own")
    if text.lower() == EARLIEST:
        return Target(name=EARLIEST, asked_at=now)
    if text.lower() == LATEST:
        return Target(name=LATEST, asked_at=now, instant=now.astimezone(UTC), is_latest=True)
    instant = _instant(text)
    if instant is None:
        return Target(name=text, asked_at=now, position=text)
    return Target(name=text, asked_at=now, instant=checked_instant(instant, text, now))


def checked_instant(instant: datetime, text: str, now: datetime) -> datetime:
    """Return an instant (aware) in UTC.

    :param text: as a person says it.
    :raises ConfigurationError: if it lies before 1970 or in the future.
    """
    if instant < datetime(1970, 1, 1, tzinfo=UTC):  # in its own zone: UTC does not have every hour of every zone
        raise ConfigurationError(f"position {text!r} lies before 1970; give 'earliest' for all that there is")
    if instant > now:
        raise ConfigurationError(
            f"position {text!r} lies in the future, it is {format_instant(now)}; give 'latest' to read what comes"
        )
    return instant.astimezone(UTC)


def not_a_position(text: str, own: str) -> ConfigurationError:
    """Return the error about a text that is no position.

    :param own: what a position of the source's own is, such as `a sequence number in decimal digits`.
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


class ResetAction(StrEnum):
    """What is done to a partition."""

    RESET = "reset"
    """It is read anew."""
    CREATE = "created"
    """Its lease was cleaned up; it is leased again, to be read anew."""
    REMOVE = "removed"
    """It comes back when what it came from is finished, such as the partition from which an item was split off."""


@dataclass(frozen=True, kw_only=True)
class ResetStep:
    """What becomes of one partition.

    :param action: what is done.
    :param partition: as it was seen; as it is to be created.
    :param progress: what it starts from; makes it of the partition as it stands then.
    :param group: what it belongs to; nothing is removed of a group of which something could not be reset.
    """

    action: ResetAction
    partition: Partition
    progress: Callable[[Partition], Mapping[str, Any]] = _as_it_is
    group: str | None = None


@dataclass(frozen=True, kw_only=True)
class ResetPlan:
    """What becomes of the partitions that a person names.

    :param target: where they are read from.
    :param steps: in the order in which they are done.
    :param left: the keys of partitions that stay as they are, and why.
    :param warnings: what the person should know.
    """

    target: Target
    steps: tuple[ResetStep, ...]
    left: Mapping[str, str]
    warnings: tuple[str, ...] = ()

    def of(self, action: ResetAction) -> list[Partition]:
        """Return the partitions to which this is done."""
        return [step.partition for step in self.steps if step.action is action]
