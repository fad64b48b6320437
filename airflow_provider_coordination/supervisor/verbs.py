"""The table of the verbs of supervisors: operators, commands, routes and the buttons of the pages are made from it.

A verb that takes nothing but a reason is written here, as an operator with its documentation, and nowhere else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from airflow_provider_coordination.coordination.errors import (
    ConfigurationError,
    PartitionUpdateError,
    SourceError,
    StoreUnavailableError,
    SupervisionError,
)
from airflow_provider_coordination.coordination.partition_actions import NotAttemptedError, UserAction, apply_to_each
from airflow_provider_coordination.supervisor.facts import SupervisorStatus
from airflow_provider_coordination.supervisor.operations import SupervisorVerbs

log = logging.getLogger(__name__)

UNCONFIRMED = "the store did not respond, so the action may or may not be done; check the supervisor"
NOT_ATTEMPTED = "not attempted, because the store did not respond; try again"
RETENTION_RISK = "Streams that are not read for longer than their retention lose data."


def _is_current(status: SupervisorStatus) -> bool:
    return status.terminated is None


def _never(status: SupervisorStatus) -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class Verb(UserAction):
    """An operation on a supervisor.

    :param help: the description of its command.
    :param must_confirm: whether the command requires a reason and asks for confirmation.
    :param fits: whether it applies to a supervisor with this status.
    :param is_unchanged: whether a supervisor with this status is already as wanted, so that a retry changes nothing.
    :param run: carries it out; None if it needs more than a reason.
    """

    help: str = ""
    must_confirm: bool = False
    fits: Callable[[SupervisorStatus], bool] = _is_current
    is_unchanged: Callable[[SupervisorStatus], bool] = _never
    run: Callable[[SupervisorVerbs], object] | None = None


VERBS = {
    verb.name: verb
    for verb in (
        Verb(
            name="submit",
            label="Submit",
            done="updated",
            text="Checks the spec against the source, then stores it as a new version. If it changes what jobs do, "
            "they hand over to jobs of the new version without a gap.",
            risk="An invalid spec is refused. If the spec comes from a file, the next edit of the file replaces this "
            "version.",
            fits=lambda status: True,
        ),
        Verb(
            name="suspend",
            label="Suspend",
            text="Stops all work until a user resumes the source. Jobs deliver what they have read, give their leases "
            "back and end. Sensors keep waiting.",
            risk=RETENTION_RISK,
            done="suspended",
            help="Suspend a supervisor: its jobs deliver what they have read and end, and no job starts.",
            text_for_many="Suspends every source that has a supervisor: jobs deliver what they have read and end.",
            must_confirm=True,
            fits=lambda status: status.terminated is None and status.suspended is None,
            is_unchanged=lambda status: status.terminated is None and status.suspended is not None,
            run=SupervisorVerbs.suspend,
        ),
        Verb(
            name="resume",
            label="Resume",
            text="Jobs take partitions again, and new work is discovered again.",
            done="resumed",
            help="Resume a suspended supervisor.",
            text_for_many="Resumes every suspended source that has a supervisor.",
            fits=lambda status: status.terminated is None and status.suspended is not None,
            is_unchanged=lambda status: status.terminated is None and status.suspended is None,
            run=SupervisorVerbs.resume,
        ),
        Verb(
            name="handover",
            label="Hand over",
            text="Starts a new job for each running one. Once the new job runs, the old one delivers what it has read "
            "and ends.",
            risk="None. For a while, twice as many jobs run.",
            done="handing over: each job ends once its successor runs",
            help="Replace every job by a new one now, as at the end of its task duration.",
            text_for_many="Starts a new job for each running job of every supervisor. The old jobs deliver what they "
            "have read and end.",
            fits=lambda status: status.terminated is None and bool(status.jobs),
            run=SupervisorVerbs.hand_over,
        ),
        Verb(
            name="reset",
            label="Reset",
            text="Restarts the source at another position. Running jobs continue there.",
            risk="Data after that position is delivered again. Undelivered data before it is skipped.",
            done="reset",
            text_for_many="Restarts every source that has a supervisor at another position.",
            is_destructive=True,
            must_confirm=True,
        ),
        Verb(
            name="terminate",
            label="Terminate",
            text="Ends supervision: jobs deliver what they have read and end. No job is started until a spec is "
            "submitted, which continues at the same positions.",
            risk=RETENTION_RISK,
            done="terminated",
            help="Terminate a supervisor: its jobs deliver what they have read and end, and no more jobs start.",
            text_for_many="Ends supervision of every source: jobs deliver what they have read and end, and no job is "
            "started.",
            is_destructive=True,
            must_confirm=True,
            is_unchanged=lambda status: status.terminated is not None,
            run=SupervisorVerbs.terminate,
        ),
    )
}
"""The verbs by name, in the order of their buttons."""


def verbs_for(status: SupervisorStatus) -> list[str]:
    """Return the names of the verbs that apply to a supervisor now."""
    return [name for name, verb in VERBS.items() if verb.fits(status)]


@dataclass(frozen=True, kw_only=True)
class VerbOutcome:
    """The result of a verb for one of several supervisors.

    :param source: the source.
    :param is_done: whether the verb was carried out.
    :param detail: why it was not; empty if it was.
    :param has_failed: whether it failed or may have failed, although it fits the state of the supervisor.
    """

    source: str
    is_done: bool
    detail: str = ""
    has_failed: bool = False


def apply_to_all(
    sources: Sequence[str],
    verbs_of: Callable[[str], SupervisorVerbs],
    run: Callable[[SupervisorVerbs], object],
) -> Iterator[VerbOutcome]:
    """Apply a verb to several supervisors; yield the result of each. See `apply_to_each`.

    :param sources: the sources.
    :param verbs_of: returns the verbs for the supervisor of a source.
    :param run: carries the verb out.
    :raises StoreUnavailableError: if the store is unavailable for the first source.
    """
    failures = (SupervisionError, SourceError, ConfigurationError, PartitionUpdateError)
    for source, result in apply_to_each(sources, lambda source: run(verbs_of(source)), failures):
        if not isinstance(result, Exception):
            yield VerbOutcome(source=source, is_done=True)
            continue
        detail = str(result)
        if isinstance(result, NotAttemptedError):
            detail = NOT_ATTEMPTED
        elif isinstance(result, StoreUnavailableError):
            detail = UNCONFIRMED
        elif isinstance(result, SourceError):  # the text may hold the name of a host
            log.error("source is unavailable: source=%s: %s", source, result)
            detail = f"source {source!r} is unavailable ({type(result).__name__}); see the log for details"
        has_failed = not isinstance(result, SupervisionError)
        yield VerbOutcome(source=source, is_done=False, detail=detail, has_failed=has_failed)
