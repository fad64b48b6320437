"""Task that compares what was read of a source with what each sink has, and repairs gaps once a person approves it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from copy import copy
from dataclasses import asdict
from typing import Any

from airflow.sdk import BaseOperator, Context

from airflow_provider_coordination.airflow_names import AirflowFailException, AirflowSkipException
from airflow_provider_coordination.audit.repair import PlannedRepair, findings_left, plan_of, plan_repairs
from airflow_provider_coordination.audit.report import AuditFinding, AuditReport, State, shown, state_of
from airflow_provider_coordination.audit.source_audit import audit_source, dead_letter_sink
from airflow_provider_coordination.coordination.errors import CoordinationError, PartitionUpdateError
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.hooks.connections import AirflowConnections
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.hooks.task_try import (
    OwnCopiesMixin,
    audit_fields,
    bool_value,
    failing_when_misconfigured,
    owner_of_try,
)
from airflow_provider_coordination.links import LeasesLink
from airflow_provider_coordination.operators.acknowledge import sets_of
from airflow_provider_coordination.operators.approval import (
    Amount,
    Approval,
    Approved,
    Proposal,
    code,
    digest,
    require_approval,
)
from airflow_provider_coordination.settings import text_value
from airflow_provider_coordination.sources.reset import Resets
from airflow_provider_coordination.sources.reset_targets import Target
from airflow_provider_coordination.spark.writes import Writes, all_of, sinks_of

FINDINGS_RETURNED = 20
RANGES_SHOWN = 50


class AuditOperator(OwnCopiesMixin, BaseOperator):
    """Compares, for each partition of a source, the ranges that were read with what each sink has.

    It runs in the task itself, and needs no Spark. Jobs may deliver during that time. It changes nothing, unless
    `repairs` is given: if there are gaps that can be repaired, the task then shows them to a person, and waits. Once
    they are approved it audits again, and lets jobs read exactly these ranges again, or fails if others are missing by
    then. If they are rejected, it changes nothing, and ends as without `repairs`.

    Returns the `source`, its `state`, the number of its `partitions` in all sinks, of those that are `complete`, of
    `findings` that are not explained, with the first of them as `first_findings`, and of the ranges that are
    `repaired`, with the first of them as `first_repaired`. What is repaired is a finding until jobs have read it.

    :param source: the source's name. (templated)
    :param writes: the sinks, as in `writes` of the jobs: all of them, for repairs. (templated)
    :param dead_letter_path: the folder of the dead letters. (templated)
    :param reads_rows: whether to read the rows too, and count those of each batch. (templated)
    :param fails: whether the task fails unless everything is complete, explained, or being repaired by this task.
        (templated)
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    :param repairs: how a person approves repairs, through Airflow's human-in-the-loop tasks; None for no repairs. How
        much a range holds is not known, so it is above any limit.
    """

    template_fields: Sequence[str] = (
        "source", "writes", "dead_letter_path", "reads_rows", "fails", "coordination_conn_id",
    )  # fmt: skip
    ui_color = "#e6e0cc"
    operator_extra_links = (LeasesLink(),)
    own_copies = ("writes",)

    def __init__(
        self,
        *,
        source: str,
        writes: Writes | Sequence[Writes],
        dead_letter_path: str | None = None,
        reads_rows: bool | str = False,
        fails: bool | str = True,
        coordination_conn_id: str = CoordinationHook.default_conn_name,
        repairs: Approval | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.source = source
        self.writes: list[Writes] = [copy(each) for each in all_of(writes)]
        self.dead_letter_path = dead_letter_path
        self.reads_rows = reads_rows
        self.fails = fails
        self.coordination_conn_id = coordination_conn_id
        self.repairs = repairs

    def execute(self, context: Context) -> dict[str, Any]:
        """Audit the source.

        :raises AirflowFailException: for an error that only a user can fix, and for findings that are not explained.
        :raises StoreUnavailableError: if the store does not respond.
        """
        return self._audit(context, self.repairs)

    def execute_complete(self, context: Context, event: Mapping[str, Any], proposal: Mapping[str, Any]) -> Any:
        """Audit the source again once a person has responded, and repair what was approved.

        :param event: the person's response.
        :param proposal: what was proposed, as a JSON object.
        :raises AirflowFailException: if no response arrived in time, and as `execute`.
        :raises AirflowException: if other ranges would now be repaired than were approved; a retry asks again.
        :raises CoordinationError: if the store does not respond, or a partition could not be changed; a retry asks
            again.
        """
        approved = None
        try:
            approved = Approved.of(event, proposal)
            self.log.info("source %s: the repairs were approved by %s", self.source, approved.by)
        except AirflowSkipException as rejection:  # the gaps are still there, so the task is not skipped
            self.log.warning("source %s: no repairs: %s", self.source, rejection)
        return self._audit(context, None if approved is None else self.repairs, approved)

    def _audit(self, context: Context, approval: Approval | None, approved: Approved | None = None) -> dict[str, Any]:
        with failing_when_misconfigured():
            reads_rows, fails = bool_value("reads_rows", self.reads_rows), bool_value("fails", self.fails)
            sinks = list(sinks_of(self.writes, AirflowConnections()))
            if (path := text_value(self.dead_letter_path)) is not None:
                sinks.append(dead_letter_sink(path))
            view = CoordinationHook(self.coordination_conn_id).view(self.source)
            with closing(view.store):
                report = audit_source(view, sinks, reads_rows=reads_rows)
                for finding in report.findings:
                    log = self.log.info if finding.is_explained else self.log.error
                    log("%s", finding)
                planned: list[PlannedRepair] = []
                if approval is not None:
                    planned = self._repaired(context, view, report, approval, approved)
        left = findings_left(report, planned)
        if fails and left:
            first = left[0]
            raise AirflowFailException(
                f"source {self.source!r}: {len(left)} findings, the most severe is {state_of(left)}; the first: "
                f"sink {first.sink!r}, partition {first.partition_key!r}: {first.reason}; {first.remedy}"
            )
        return summary_of(report, [each for each in planned if each.repair])

    def _repaired(
        self, context: Context, view: SourceView, report: AuditReport, approval: Approval, approved: Approved | None
    ) -> list[PlannedRepair]:
        """Plan the repair of all gaps, and repair what can be repaired, or let the task wait; return the plan."""
        target = Target(name="repair", requested_at=view.clock.now())
        planned = plan_repairs(report, {each.partition_key: each for each in view.partitions()}, target)
        going = [each for each in planned if each.repair]
        if not going:
            return planned
        proposal = repair_proposal(report, planned)
        require_approval(context, approval, proposal, approved)
        fields = audit_fields(context, None if approved is None else approved.by)
        settings = CoordinationHook(self.coordination_conn_id).settings
        sets = sets_of(settings.coordinator(self.source, owner_of_try(context), store=view.store))
        results = list(Resets(sets, **fields).apply(plan_of(going, target), only_if_unchanged=False))
        if failed := [result for _, result in results if isinstance(result, CoordinationError)]:
            raise PartitionUpdateError(
                f"source {self.source!r}: {len(failed)} of {len(results)} ranges could not be repaired: {failed[0]}"
            )
        self.log.info("%s: done", proposal.subject)
        return planned


def repair_proposal(report: AuditReport, planned: Sequence[PlannedRepair]) -> Proposal:
    """Return the proposal of repairs.

    :param report: the audit.
    :param planned: what is planned for all its gaps.
    """
    going = [each for each in planned if each.repair]
    ranges = "1 range" if len(going) == 1 else f"{len(going)} ranges"
    lines = [
        f"Jobs of source {code(report.source)} will read again what sinks lack, and every sink gets it: {ranges}.",
        "",
        "| partition | after | until | missing in | there already, and then twice | what was found | what happens |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in going[:RANGES_SHOWN]:
        key, after, until = each.range
        cells = [
            *map(code, (key, shown(after), shown(until))),
            ", ".join(map(code, each.lacking)),
            ", ".join(map(code, each.having)) or "none",
            _cell(each.gap.reason),
            _cell("" if each.repair is None else each.repair.text),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    if len(going) > RANGES_SHOWN:
        lines.append(f"| and {len(going) - RANGES_SHOWN} more | | | | | | |")
    if report.reads_rows:
        lines += ["", "If only some rows of a batch are gone, its other rows are then there twice. Remove them first."]
    if unknown := report.unknown_sinks:
        lines += ["", f"It is not known what these sinks have, and they get it too: {', '.join(map(code, unknown))}."]
    if left := findings_left(report, planned):
        lines += ["", "The audit also found problems that this does not repair:", ""]
        lines += [f"- {each}" for each in left[:FINDINGS_RETURNED]]
        if len(left) > FINDINGS_RETURNED:
            lines.append(f"- and {len(left) - FINDINGS_RETURNED} more")
    done = digest([report.source, unknown, *sorted(_scope_of(each) for each in going)])
    return Proposal(
        subject=f"Repair source {report.source!r}: read {ranges} again that sinks lack",
        body="\n".join(lines),
        scope=done,
        state=done,  # exactly these ranges are read, however much jobs deliver in between
        amount=Amount(span=None, bytes=None),
    )


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def _scope_of(each: PlannedRepair) -> list[str]:
    """Return what is approved; new partitions have names of their own in each plan."""
    action = "" if each.repair is None else str(each.repair.step.action)
    return [*map(shown, each.range), action, str(sorted(each.lacking)), str(sorted(each.having))]


def summary_of(report: AuditReport, repaired: Sequence[PlannedRepair] = ()) -> dict[str, Any]:
    """Return the report as a small JSON object.

    :param report: the audit.
    :param repaired: the ranges that are read again.
    """
    wrong = [each for each in report.findings if not each.is_explained]
    partitions = [each for sink in report.sinks for each in sink.partitions]
    return {
        "source": report.source,
        "state": str(report.state),
        "partitions": len(partitions),
        "complete": sum(each.state is State.COMPLETE for each in partitions),
        "findings": len(wrong),
        "first_findings": [_finding_of(each) for each in wrong[:FINDINGS_RETURNED]],
        "repaired": len(repaired),
        "first_repaired": [_repair_of(each) for each in repaired[:FINDINGS_RETURNED]],
    }


def _finding_of(finding: AuditFinding) -> dict[str, Any]:
    return {**asdict(finding), "state": str(finding.state)}


def _repair_of(each: PlannedRepair) -> dict[str, Any]:
    key, after, until = each.range
    return {
        "partition_key": key, "after": after, "until": until,
        "lacking": list(each.lacking), "twice": list(each.having),
        "effect": None if each.repair is None else each.repair.text,
    }  # fmt: skip
