"""The table of the actions of users on partitions, and the loop that applies a change to many things.

Commands, routes and the buttons of the pages are made from the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from airflow_provider_coordination.coordination.administration import (
    Administration,
    check_parkable,
    check_releasable,
    check_reopenable,
)
from airflow_provider_coordination.coordination.errors import (
    CoordinationError,
    PartitionNotFoundError,
    PartitionStatusError,
    PartitionUpdateError,
    ProgressError,
    StoreUnavailableError,
)
from airflow_provider_coordination.coordination.partition import Partition

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class UserAction:
    """An action of a user, as commands and pages describe it.

    :param name: its name in commands, URLs and the audit log.
    :param label: the text of its button.
    :param done: what its object is afterwards, such as `released`.
    :param text: what it does.
    :param text_for_many: what it does to several; empty if it applies to a single one.
    :param risk: the worst consequence.
    :param is_destructive: whether its button is red.
    """

    name: str
    label: str
    done: str
    text: str
    text_for_many: str = ""
    risk: str = "None."
    is_destructive: bool = False

    def consequence(self, number: int = 1) -> str:
        """Return what it leads to, which users read before they confirm.

        :param number: to how many it is applied.
        """
        return f"{self.text if number == 1 else self.text_for_many} {self.risk}"


@dataclass(frozen=True, kw_only=True)
class PartitionAction(UserAction):
    """An action on partitions.

    :param check: raises `PartitionStatusError` if it does not apply to a partition at an instant (aware).
    :param run: carries it out with the arguments of the methods of `Administration`; None if it needs more of them.
    """

    check: Callable[[Partition, datetime], object]
    run: Callable[..., Partition] | None = None


PARTITION_ACTIONS = {
    action.name: action
    for action in (
        PartitionAction(
            name="release",
            label="Release",
            done="released",
            text="Ends the lease now, so that another job can take the partition. Progress is kept.",
            text_for_many="Ends the leases now, so that other jobs can take the partitions. Progress is kept.",
            risk="If the owner is still running, its writes are refused, and its work in progress is repeated. Nothing "
            "is delivered twice.",
            check=lambda partition, now: check_releasable(partition),
            run=Administration.release,
        ),
        PartitionAction(
            name="reopen",
            label="Reopen",
            done="reopened",
            text="Makes the partition available now and resets its failure count. Progress is kept.",
            text_for_many="Makes the partitions available now and resets their failure counts. Progress is kept.",
            risk="None. If the cause is not fixed, the partition fails and parks again.",
            check=check_reopenable,
            run=Administration.reopen,
        ),
        PartitionAction(
            name="park",
            label="Park",
            done="parked",
            text="Stops all work on the partition until a user reopens it. Writes of an owner are refused, progress is "
            "kept.",
            text_for_many="Stops all work on the partitions until a user reopens them. Writes of owners are refused, "
            "progress is kept.",
            risk="A stream may trim data that is not read in time.",
            check=lambda partition, now: check_parkable(partition),
            run=Administration.park,
        ),
        PartitionAction(
            name="reset",
            label="Reset",
            done="reset",
            text="Restarts the partition at another position, whatever its state.",
            text_for_many="Restarts the partitions at another position, whatever their states.",
            risk="Data after that position is delivered again. Undelivered data before it is skipped.",
            is_destructive=True,
            check=lambda partition, now: None,
        ),
    )
}
"""The actions by name, in the order of their buttons."""


def actions_for(partition: Partition, now: datetime) -> list[str]:
    """Return the names of the actions that apply to a partition at an instant (aware)."""
    return [name for name, action in PARTITION_ACTIONS.items() if _applies(action, partition, now)]


def _applies(action: PartitionAction, partition: Partition, now: datetime) -> bool:
    try:
        action.check(partition, now)
    except PartitionStatusError:
        return False
    return True


class NotAttemptedError(StoreUnavailableError):
    """The store did not respond before, so a change was not attempted."""


CHANGE_ERRORS = (PartitionNotFoundError, PartitionStatusError, PartitionUpdateError, ProgressError)
"""The errors of a change that concern only its partition."""


def apply_to_each(
    things: Sequence[T], change: Callable[[T], R], failures: tuple[type[CoordinationError], ...] = CHANGE_ERRORS
) -> Iterator[tuple[T, R | CoordinationError]]:
    """Apply a change to each of several things; yield each with the result of its change, or its error.

    If a change fails, the others are still attempted. If the store becomes unavailable, the result of that change is
    unknown, and the rest is not attempted: each attempt would take seconds.

    :param failures: the errors that concern a single thing.
    :raises StoreUnavailableError: if the store is unavailable for the first of them.
    """
    for number, thing in enumerate(things):
        result: R | CoordinationError
        try:
            result = change(thing)
        except StoreUnavailableError as error:
            if not number:
                raise
            yield thing, error
            yield from ((rest, NotAttemptedError(str(error))) for rest in things[number + 1 :])
            return
        except failures as error:
            result = error
        yield thing, result
