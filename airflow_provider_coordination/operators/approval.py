"""Approval by a person before a task does what cannot be undone, through Airflow's human-in-the-loop tasks.

A task makes a `Proposal`: what it would do, and how much. If that is more than the limit of its `Approval`, the task
waits for a person without a worker. After the response it makes the proposal again. It goes on only if that is still
what the person has seen: the state may have changed while the task waited.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import Context

from airflow_provider_coordination.airflow_names import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    TaskDeferred,
    airflow_version,
)
from airflow_provider_coordination.sources.reset_targets import Reread, ResetPlan

if TYPE_CHECKING:
    from airflow.sdk.bases.notifier import BaseNotifier
    from airflow.sdk.execution_time.hitl import HITLUser

APPROVE, REJECT = "Approve", "Reject"
NEEDED = ("airflow.sdk.execution_time.hitl", "airflow.providers.standard.triggers.hitl")
"""What an Airflow has whose tasks can wait for a person."""
PARTITIONS_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class Approval:
    """When a person must approve what a task is about to do, and who is asked.

    :param above: what may be read again without approval: a timedelta, for the longest time of a partition, or a number
        of bytes, for all partitions. What is not known counts as more. By default, anything needs approval.
    :param timeout: how long to wait for the response; then the task fails. None for no limit.
    :param assigned_users: who may respond, as Airflow's `HITLOperator` has it; empty for every user who may by role.
    :param notifiers: Airflow's notifiers that are called when the task begins to wait.
    :raises ValueError: if a value is wrong, or this Airflow has no tasks that wait for a person.
    """

    above: timedelta | int = timedelta(0)
    timeout: timedelta | None = None
    assigned_users: Sequence[HITLUser] = ()
    notifiers: Sequence[BaseNotifier] = ()

    def __post_init__(self) -> None:
        above: Any = self.above
        least = {timedelta: timedelta(0), int: 0}.get(type(above))
        if least is None or above < least:
            raise ValueError(
                "field 'above' must be a timedelta, or a number of bytes such as 10 * 2**30, of 0 or more; got "
                f"{self.above!r}"
            )
        timeout: Any = self.timeout
        if timeout is not None and not (isinstance(timeout, timedelta) and timeout > timedelta(0)):
            raise ValueError(f"field 'timeout' must be a positive timedelta, or None; got {timeout!r}")
        for name in NEEDED:
            if not _is_available(name):
                raise ValueError(
                    f"field 'approval' needs Airflow's human-in-the-loop tasks: module {name!r} is missing in Airflow "
                    f"{airflow_version()}; upgrade apache-airflow-providers-standard, or leave 'approval' out"
                )


def _is_available(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@dataclass(frozen=True, kw_only=True)
class Amount:
    """How much is read again.

    :param span: the longest time of a partition; None if unknown.
    :param bytes: the total size in bytes; None if unknown.
    """

    span: timedelta | None
    bytes: int | None

    def exceeds(self, limit: timedelta | int) -> bool:
        """Return whether it is more than a limit, or may be."""
        if isinstance(limit, timedelta):
            return self.span is None or self.span > limit
        return self.bytes is None or self.bytes > limit

    def since(self, before: Amount) -> Amount:
        """Return how much it has grown."""
        span = self.span - before.span if self.span is not None and before.span is not None else None
        size = self.bytes - before.bytes if self.bytes is not None and before.bytes is not None else None
        return Amount(span=span, bytes=size)

    def __str__(self) -> str:
        """Return a description."""
        span = "an unknown time" if self.span is None else f"up to {_duration(self.span)} of each partition"
        return f"{span}, {'unknown size' if self.bytes is None else f'about {_size(self.bytes)}'}"


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """What a task is about to do.

    :param subject: in one line, for a person.
    :param body: the details in Markdown.
    :param scope: identifies what is done and to what; another scope needs another approval.
    :param state: identifies the state on which the amount depends.
    :param amount: how much it reads again.
    """

    subject: str
    body: str
    scope: str
    state: str
    amount: Amount

    def to_mapping(self) -> dict[str, Any]:
        """Return what is compared with a later proposal, as a JSON object."""
        span = None if self.amount.span is None else self.amount.span.total_seconds()
        return {"scope": self.scope, "state": self.state, "span": span, "bytes": self.amount.bytes}


@dataclass(frozen=True, kw_only=True)
class Approved:
    """What a person approved.

    :param by: the person.
    :param scope: see `Proposal`.
    :param state: see `Proposal`.
    :param amount: how much would have been read again.
    """

    by: str
    scope: str
    state: str
    amount: Amount

    @classmethod
    def of(cls, event: Mapping[str, Any], proposal: Mapping[str, Any]) -> Approved:
        """Return what a response approves.

        :param event: the response of Airflow's human-in-the-loop tasks.
        :param proposal: the proposal that was shown, as a JSON object.
        :raises AirflowSkipException: if it was rejected.
        :raises AirflowFailException: if no response arrived in time.
        """
        if "error" in event:
            late = event.get("error_type") == "timeout"
            why = "no response arrived in time" if late else f"there was no response: {event['error']}"
            raise AirflowFailException(f"nothing was done: {why}; clear the task to ask again")
        user = event.get("responded_by_user") or {}
        by = str(user.get("name") or user.get("id") or "unknown")
        if list(event.get("chosen_options") or ()) != [APPROVE]:
            raise AirflowSkipException(f"nothing was done: it was rejected by {by}")
        span = None if proposal["span"] is None else timedelta(seconds=proposal["span"])
        amount = Amount(span=span, bytes=proposal["bytes"])
        return cls(by=by, scope=proposal["scope"], state=proposal["state"], amount=amount)

    def lack(self, proposal: Proposal, limit: timedelta | int) -> str | None:
        """Return why this does not cover a later proposal; None if it does.

        :param limit: how much more than approved may be read again.
        """
        if self.scope != proposal.scope:
            return "other partitions or ranges are affected, or in another way"
        if self.state == proposal.state or not proposal.amount.since(self.amount).exceeds(limit):
            return None
        return f"it would now read again {proposal.amount}, and {self.amount} was approved"


def require_approval(context: Context, approval: Approval, proposal: Proposal, approved: Approved | None) -> None:
    """Return if a task may do what it proposes; otherwise let it wait for a person.

    After the response the task continues in its method `execute_complete`, with the arguments of `Approved.of`.

    :param approved: what a person approved before; None if nobody was asked.
    :raises AirflowException: if the proposal is no longer what was approved. A retry asks again: Airflow shows one
        question for each try.
    """
    if approved is not None:
        if (lack := approved.lack(proposal, approval.above)) is not None:
            raise AirflowException(
                f"{proposal.subject}: nothing was done, because it is not what {approved.by} approved: {lack}; clear "
                "the task to ask again, and suspend the source before, so that nothing changes"
            )
    elif proposal.amount.exceeds(approval.above):
        _ask(context, approval, proposal)


def _ask(context: Context, approval: Approval, proposal: Proposal) -> NoReturn:
    """Ask a person, and let the task wait for the response."""
    from airflow.sdk import exceptions
    from airflow.sdk.execution_time.hitl import upsert_hitl_detail

    ti: Any = context["ti"]
    upsert_hitl_detail(
        ti_id=ti.id,
        options=[APPROVE, REJECT],
        subject=proposal.subject,
        body=proposal.body,
        params={},
        assigned_users=list(approval.assigned_users),
    )
    for notifier in approval.notifiers:
        notifier(context)
    waiting: Any = getattr(exceptions, "TaskAwaitingInput", None)
    then: dict[str, Any] = {"method_name": "execute_complete", "kwargs": {"proposal": proposal.to_mapping()}}
    if waiting is not None:
        raise waiting(**then, timeout=approval.timeout)
    from airflow.providers.standard.triggers.hitl import HITLTrigger

    until = None if approval.timeout is None else datetime.now(UTC) + approval.timeout
    trigger = HITLTrigger(ti_id=ti.id, options=[APPROVE, REJECT], params={}, timeout_datetime=until)
    raise TaskDeferred(trigger=trigger, **then)


def reset_proposal(source: str, plan: ResetPlan, rereads: Sequence[Reread]) -> Proposal:
    """Return the proposal of a reset.

    :param source: the source's name.
    :param plan: what is reset.
    :param rereads: what it reads again, by partition.
    """
    spans, sizes = [each.span for each in rereads], [each.bytes for each in rereads]
    amount = Amount(
        span=None if None in spans else max(filter(None, spans), default=timedelta(0)),
        bytes=None if None in sizes else sum(filter(None, sizes)),
    )
    subject = f"Read source {source!r} again from {plan.target.name}: {len(rereads)} partitions, {amount}"
    lines = [
        f"Source `{source}` will be read again from `{plan.target.name}`, and what follows is delivered again.",
        "Sinks that do not merge rows by a key then hold these rows twice.",
        "",
        f"In total: {len(rereads)} partitions, {amount}.",
        "",
        "| partition | delivered up to | time | size |",
        "|---|---|---|---|",
    ]
    largest = sorted(rereads, key=lambda each: (each.bytes is not None, -(each.bytes or 0)))[:PARTITIONS_SHOWN]
    for each in largest:
        span = "unknown" if each.span is None else _duration(each.span)
        size = "unknown" if each.bytes is None else _size(each.bytes)
        lines.append(f"| {code(each.partition_key)} | {code(each.until or 'the start')} | {span} | {size} |")
    if len(rereads) > PARTITIONS_SHOWN:
        lines.append(f"| and {len(rereads) - PARTITIONS_SHOWN} more | | | |")
    lines += ["", *(f"- {warning}" for warning in plan.warnings)]
    done = [plan.target.name, *sorted([str(step.action), step.partition.partition_key] for step in plan.steps)]
    return Proposal(
        subject=subject,
        body="\n".join(lines).rstrip(),
        scope=digest([source, *done]),
        state=digest(sorted([each.partition_key, each.until] for each in rereads)),
        amount=amount,
    )


def digest(value: object) -> str:
    """Return what identifies a value that JSON can hold."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def code(text: str) -> str:
    """Return a name or a position as code, for a cell of a table in Markdown."""
    return f"`{text}`".replace("|", r"\|")


def _duration(span: timedelta) -> str:
    hours, seconds = divmod(int(span.total_seconds()), 3600)
    return f"{hours} h {seconds // 60} min"


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"
