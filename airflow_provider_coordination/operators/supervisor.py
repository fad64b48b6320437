"""Tasks for the operations of supervisors, and for reading their status."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from typing import Any, ClassVar

from airflow.sdk import BaseOperator, Context

from airflow_provider_coordination.airflow_names import AirflowFailException
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import (
    CoordinationError,
    PartitionUpdateError,
    SupervisionError,
)
from airflow_provider_coordination.coordination.json_values import json_of
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.hooks.connections import AirflowConnections
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.hooks.supervision import checks_against_source
from airflow_provider_coordination.hooks.task_try import audit_fields, failing_when_misconfigured, owner_of_try
from airflow_provider_coordination.settings import is_plain
from airflow_provider_coordination.sources.reset_targets import EARLIEST
from airflow_provider_coordination.spark.job_settings import check_transform
from airflow_provider_coordination.supervisor.operations import (
    NOT_CHECKED,
    SupervisorVerbs,
)
from airflow_provider_coordination.supervisor.reading import (
    all_statuses,
    existing_status,
    read_history,
    read_parse_errors,
    supervised_sources,
)
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.spec_file import read_spec_file
from airflow_provider_coordination.supervisor.verbs import VERBS, Verb, VerbOutcome, apply_to_all

FIELDS = ("source", "reason", "coordination_conn_id")


class _SupervisorOperator(BaseOperator):
    """The common base of the operators: the source whose supervisor is addressed, and the audit fields."""

    template_fields: Sequence[str] = FIELDS
    ui_color = "#e3e0f2"

    def __init__(
        self,
        *,
        source: str | None,
        reason: str | None,
        coordination_conn_id: str,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.source = source
        self.reason = reason
        self.coordination_conn_id = coordination_conn_id

    def _audit_fields(self, context: Context) -> dict[str, str]:
        """Return the actor, which is the task, and the reason, which is `reason` or else the run."""
        fields = audit_fields(context)
        return {**fields, "reason": str(self.reason)} if self.reason else fields

    @contextmanager
    def _coordinator(self, context: Context, source: str) -> Iterator[SourceCoordinator]:
        """Yield a coordinator of a source.

        :raises AirflowFailException: for an error that only a user can fix, or if the supervisor's state does not allow
            the operation.
        """
        with failing_when_misconfigured(), _failing_when_refused():
            coordinator = CoordinationHook(self.coordination_conn_id).coordinator(source, owner_of_try(context))
            with closing(coordinator.store):
                yield coordinator

    def _verbs(self, context: Context, coordinator: SourceCoordinator) -> SupervisorVerbs:
        return SupervisorVerbs(coordinator, **self._audit_fields(context))

    def _source_name(self) -> str:
        if not self.source:
            raise AirflowFailException("field 'source' is missing; name the source whose supervisor is meant")
        return self.source


class SubmitSupervisorOperator(_SupervisorOperator):
    """Submits a spec, which is in effect from then on; a terminated supervisor starts again.

    Returns the `source`, the `version` in effect, its `change` (`NONE`, `COSMETIC`, `SUPERVISION` or `JOBS`) and the
    `consequence`. A retry or a cleared task makes no new version of a spec that is already in effect.

    :param spec: the spec: an object, or the path of its file on the worker. (templated)
    :param source: the source's name; by default the one in the spec. (templated)
    :param replacing: the version that the spec was made from; the task fails if another version is in effect by then.
    :param connect: whether to query the source first, if the spec changes the work of the jobs.
    :param reason: the reason for the change; by default the run. (templated)
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    """

    template_fields: Sequence[str] = ("spec", *FIELDS)

    def __init__(
        self,
        *,
        spec: Mapping[str, Any] | str,
        source: str | None = None,
        replacing: int | None = None,
        connect: bool = True,
        reason: str | None = None,
        coordination_conn_id: str = CoordinationHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(source=source, reason=reason, coordination_conn_id=coordination_conn_id, **kwargs)
        if isinstance(spec, Mapping):
            check_transform("spec", spec.get("transform"))
            if is_plain(spec):
                with suppress(ImportError):  # the job has the library that checks it
                    IngestionSpec.read(spec)
        self.spec = spec
        self.replacing = replacing
        self.connect = connect

    def execute(self, context: Context) -> dict[str, Any]:
        """Submit the spec.

        :raises AirflowFailException: if it is invalid, does not fit the source, or another version is in effect.
        :raises CoordinationError: if the store or the source did not respond; a retry may succeed.
        """
        with failing_when_misconfigured():
            mapping = read_spec_file(self.spec)[0] if isinstance(self.spec, str) else self.spec
            source = self.source or IngestionSpec.read(mapping).source
            region = CoordinationHook(self.coordination_conn_id).settings.region
        check = checks_against_source(region, connect=self.connect)
        with self._coordinator(context, source) as coordinator:
            done = self._verbs(context, coordinator).submit(mapping, replacing=self.replacing, check=check)
        if done.check_failure:
            self.log.warning("source %s: %s: %s", source, NOT_CHECKED, done.check_failure)
        for warning in done.warnings:
            self.log.warning("source %s: %s", source, warning)
        self.log.info("source %s: version %d is in effect: %s", source, done.version.version, done.consequence)
        return {
            "source": source,
            "version": done.version.version,
            "change": done.change.name,
            "consequence": done.consequence,
        }


class _OneOrAllOperator(_SupervisorOperator):
    """An operation on one supervisor, or on all supervisors of the connection; repeating it changes nothing."""

    verb: ClassVar[Verb]

    def __init__(
        self,
        *,
        source: str | None = None,
        all_sources: bool = False,
        reason: str | None = None,
        coordination_conn_id: str = CoordinationHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        if (source is None) is not all_sources:
            raise ValueError("give either 'source', or 'all_sources=True' for the supervisors of all sources")
        super().__init__(source=source, reason=reason, coordination_conn_id=coordination_conn_id, **kwargs)
        self.all_sources = all_sources

    def execute(self, context: Context) -> dict[str, Any]:
        """Request the operation.

        :raises AirflowFailException: for an error that only a user can fix, or if the supervisor's state does not allow
            the operation.
        :raises CoordinationError: if the store did not respond; a retry may succeed.
        """
        if self.all_sources:
            return self._request_all(context)
        source = self._source_name()
        with self._coordinator(context, source) as coordinator:
            # If the response of an earlier try was lost, its retry finds that the operation is done.
            is_unchanged = self.verb.is_unchanged(existing_status(coordinator.view))
            if not is_unchanged:
                self._request(self._verbs(context, coordinator))
        self.log.info("source %s: %s", source, "already in this state; nothing was done" if is_unchanged else "done")
        return {
            "done": [] if is_unchanged else [source],
            "unchanged": {source: "already in this state"} if is_unchanged else {},
        }

    def _request_all(self, context: Context) -> dict[str, Any]:
        with failing_when_misconfigured():
            hook = CoordinationHook(self.coordination_conn_id)
            settings, owner, store = hook.settings, owner_of_try(context), hook.get_conn()
            with closing(store):
                store.initialize()

                def verbs_of(source: str) -> SupervisorVerbs:
                    return self._verbs(context, settings.coordinator(source, owner, store=store))

                outcomes = list(apply_to_all(supervised_sources(store, settings.prefix), verbs_of, self._request))
        return self._summary(outcomes)

    def _summary(self, outcomes: Sequence[VerbOutcome]) -> dict[str, Any]:
        if failed := [outcome for outcome in outcomes if outcome.has_failed]:
            raise CoordinationError(
                f"the operation failed for {len(failed)} of {len(outcomes)} supervisors: {failed[0].source!r}: "
                f"{failed[0].detail}"
            )
        for outcome in outcomes:
            self.log.info("source %s: %s", outcome.source, "done" if outcome.is_done else outcome.detail)
        return {
            "done": [outcome.source for outcome in outcomes if outcome.is_done],
            "unchanged": {outcome.source: outcome.detail for outcome in outcomes if not outcome.is_done},
        }

    def _request(self, verbs: SupervisorVerbs) -> object:
        """Request the operation."""
        assert self.verb.run is not None
        return self.verb.run(verbs)


class SuspendSupervisorOperator(_OneOrAllOperator):
    """Suspends a supervisor: its jobs deliver what they have read and end, and none starts until it is resumed.

    Returns the sources for which it was `done`, and those that are `unchanged`, each with the reason. A supervisor that
    is already suspended is not changed.

    :param source: the source's name. (templated)
    :param all_sources: all supervisors of the connection, instead of one.
    :param reason: the reason; by default the run. (templated)
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    """

    verb = VERBS["suspend"]


class ResumeSupervisorOperator(_OneOrAllOperator):
    """Resumes a suspended supervisor.

    Returns the sources for which it was `done`, and those that are `unchanged`, each with the reason.

    :param source: the source's name. (templated)
    :param all_sources: all supervisors of the connection, instead of one.
    :param reason: the reason; by default the run. (templated)
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    """

    verb = VERBS["resume"]


class TerminateSupervisorOperator(_OneOrAllOperator):
    """Terminates a supervisor: its jobs deliver what they have read and end, and no further job starts.

    Returns the sources for which it was `done`, and those that are `unchanged`, each with the reason. A spec that is
    submitted later continues where this supervisor ended.

    :param source: the source's name. (templated)
    :param all_sources: all supervisors of the connection, instead of one.
    :param reason: the reason; by default the run. (templated)
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    """

    verb = VERBS["terminate"]


class ResetSupervisorOperator(_OneOrAllOperator):
    """Reads the source of a supervisor again, or some of its partitions; jobs continue from the new positions.

    Returns the number of partitions that were `reset`, `created` and `removed`, the number that were `left` as they
    are, and the first of these with the reason as `left_because`. For all sources it returns those for which it was
    `done`, and those that are `unchanged`, each with the reason. A retry or a cleared task resets again.

    :param source: the source's name. (templated)
    :param all_sources: all supervisors of the connection, instead of one.
    :param to: the position from which the whole source is read: `"earliest"`, `"latest"`, or an instant (an aware
        datetime or its ISO 8601 text). (templated)
    :param positions: reset only these partitions: a position for each partition key, or for the name that the kind of
        source uses, such as a shard id. (templated)
    :param forget: instead, remove all partitions of a suspended or terminated supervisor, so that its spec may read
        other data. Every batch must be acknowledged.
    :param reason: the reason; by default the run. (templated)
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    """

    verb = VERBS["reset"]
    template_fields: Sequence[str] = ("to", "positions", *FIELDS)

    def __init__(
        self,
        *,
        to: datetime | str = EARLIEST,
        positions: Mapping[str, str] | None = None,
        forget: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if self.all_sources and positions is not None:
            raise ValueError("'positions' are those of a single source; give 'source', not 'all_sources'")
        if forget and (self.all_sources or positions is not None or to != EARLIEST):
            raise ValueError(
                "'forget' removes the partitions of a single source; omit 'to', 'positions', 'all_sources'"
            )
        self.to = to
        self.positions = positions
        self.forget = forget

    def execute(self, context: Context) -> dict[str, Any]:
        """Reset the positions.

        :raises AirflowFailException: for an error that only a user can fix, or if the supervisor's state does not allow
            a reset.
        :raises CoordinationError: if the store or the source did not respond, or a partition could not be reset; a
            retry may succeed.
        """
        if self.all_sources:
            return self._request_all(context)
        source = self._source_name()
        with self._coordinator(context, source) as coordinator:
            verbs = self._verbs(context, coordinator)
            if self.forget:
                done = verbs.forget()
            else:
                done = verbs.reset(self.to, self.positions, connections=self._connections())
        for warning in done.warnings:
            self.log.warning("source %s: %s", source, warning)
        if done.failed:
            raise PartitionUpdateError(done.summary(source))
        return {
            "source": source,
            **{name: sum(each.action == name for each in done.outcomes) for name in ("reset", "created", "removed")},
            "left": len(done.unchanged),
            "left_because": dict(list(done.unchanged.items())[:10]),
        }

    def _request(self, verbs: SupervisorVerbs) -> object:
        return verbs.reset_whole(self.to, connections=self._connections())

    def _connections(self) -> AirflowConnections:
        return AirflowConnections(CoordinationHook(self.coordination_conn_id).settings.region)


class HandOverSupervisorOperator(_OneOrAllOperator):
    """Makes every job of a supervisor hand over to a new job now, as it does at the end of its time.

    Returns the sources for which it was `done`, and those that are `unchanged`, each with the reason. It does not wait:
    a job ends once its successor runs.

    :param source: the source's name. (templated)
    :param all_sources: all supervisors of the connection, instead of one.
    :param reason: the reason; by default the run. (templated)
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    """

    verb = VERBS["handover"]


class ListSupervisorsOperator(BaseOperator):
    """Returns the status of every supervisor of a connection; those that need a user come first.

    Each one is the object that the command `supervisor list --json` prints.

    :param coordination_conn_id: the connection of type `coordination`. (templated)
    """

    template_fields: Sequence[str] = ("coordination_conn_id",)
    ui_color = _SupervisorOperator.ui_color

    def __init__(self, *, coordination_conn_id: str = CoordinationHook.default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.coordination_conn_id = coordination_conn_id

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Read the statuses.

        :raises AirflowFailException: for an error that only a user can fix.
        """
        with failing_when_misconfigured():
            hook = CoordinationHook(self.coordination_conn_id)
            settings, store = hook.settings, hook.get_conn()
            with closing(store):
                store.initialize()
                statuses = all_statuses(store, settings.prefix, lambda source: settings.view(source, store=store))
                return [json_of(each) for each in statuses]


class _ReadingOperator(_SupervisorOperator):
    """The common base of the operators that read one supervisor."""

    template_fields: Sequence[str] = ("source", "coordination_conn_id")

    def __init__(
        self, *, source: str, coordination_conn_id: str = CoordinationHook.default_conn_name, **kwargs: Any
    ) -> None:
        super().__init__(source=source, reason=None, coordination_conn_id=coordination_conn_id, **kwargs)

    def execute(self, context: Context) -> Any:
        """Read the supervisor.

        :raises AirflowFailException: if the source has no supervisor, or for an error that only a user can fix.
        """
        with failing_when_misconfigured(), _failing_when_refused():
            view = CoordinationHook(self.coordination_conn_id).view(self._source_name())
            with closing(view.store):
                return self._read(view)

    @abstractmethod
    def _read(self, view: SourceView) -> Any:
        """Read the operator's result."""


class SupervisorStatusOperator(_ReadingOperator):
    """Returns the status of a supervisor: the object that the command `supervisor status --json` prints.

    :param source: the source's name. (templated)
    :param must_be_healthy: fail the task if the supervisor is not healthy.
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    """

    def __init__(self, *, must_be_healthy: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.must_be_healthy = must_be_healthy

    def execute(self, context: Context) -> dict[str, Any]:
        """Read the status.

        :raises AirflowFailException: if the source has no supervisor, or for an error that only a user can fix.
        :raises SupervisionError: if the supervisor must be healthy and is not; a retry may find that it is.
        """
        status: dict[str, Any] = super().execute(context)
        if self.must_be_healthy and not status["healthy"]:
            errors = status["errors"]
            because = f": {errors[0]['message']}" if errors else ""
            raise SupervisionError(f"the supervisor of source {self.source!r} is {status['detailed_state']}{because}")
        return status

    def _read(self, view: SourceView) -> dict[str, Any]:
        return json_of(existing_status(view))


class SupervisorHistoryOperator(_ReadingOperator):
    """Returns the latest versions of a supervisor's spec, newest first: who submitted each, why, and what it changed.

    :param source: the source's name. (templated)
    :param limit: the maximum number of versions.
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    """

    def __init__(self, *, limit: int = 20, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if limit < 1:
            raise ValueError(f"'limit' must be at least 1; got {limit}")
        self.limit = limit

    def _read(self, view: SourceView) -> list[dict[str, Any]]:
        return [json_of(each) for each in read_history(view, self.limit)]


class SupervisorParseErrorsOperator(_ReadingOperator):
    """Returns the bad records of a supervisor: the object that the command `supervisor parse-errors --json` prints.

    :param source: the source's name. (templated)
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    """

    def _read(self, view: SourceView) -> dict[str, Any]:
        return json_of(read_parse_errors(view))


@contextmanager
def _failing_when_refused() -> Iterator[None]:
    """Fail the task without a retry if the supervisor's state does not allow the operation."""
    try:
        yield
    except SupervisionError as error:
        raise AirflowFailException(str(error)) from None
