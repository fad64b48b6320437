"""The verbs of supervisors as tasks: what may be asked of them, and what there is to see."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import (
    CoordinationError,
    PartitionUpdateError,
    SupervisionError,
)
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.hooks.source_checks import checks_against_source
from airflow_provider_coordination.hooks.task_try import failing_when_misconfigured, owner_of_try
from airflow_provider_coordination.operators.partition_names import who_and_why
from airflow_provider_coordination.sources.reset_targets import EARLIEST
from airflow_provider_coordination.supervisor.operations import (
    UNANSWERED,
    SupervisorVerbs,
    VerbOutcome,
    all_statuses,
    existing_status,
    for_all,
    read_history,
    supervised_sources,
)
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.spec_file import read_spec_file
from airflow_provider_coordination.supervisor.status import read_parse_errors

FIELDS = ("source", "reason", "coordination_conn_id")


class _SupervisorOperator(BaseOperator):
    """What the verbs have in common: whose supervisor is meant, and in whose name they are asked for."""

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

    def _as_who(self, context: Context) -> dict[str, str]:
        """Return who asks, the task, and why: what the task says, or else its run."""
        named = who_and_why(context)
        return {**named, "reason": str(self.reason)} if self.reason else named

    @contextmanager
    def _coordinator(self, context: Context, source: str) -> Iterator[SourceCoordinator]:
        """Yield a coordinator of a source.

        :raises AirflowFailException: if only a person can put things right, or it makes no sense as it stands.
        """
        with failing_when_misconfigured(), _failing_when_refused():
            coordinator = CoordinationHook(self.coordination_conn_id).coordinator(source, owner_of_try(context))
            with closing(coordinator.store):
                yield coordinator

    def _verbs(self, context: Context, coordinator: SourceCoordinator) -> SupervisorVerbs:
        return SupervisorVerbs(coordinator, **self._as_who(context))

    def _named(self) -> str:
        if not self.source:
            raise AirflowFailException("field 'source' is missing; name the source whose supervisor is meant")
        return self.source


class SubmitSupervisorOperator(_SupervisorOperator):
    """Submits a spec, which rules from now on; a supervisor that was terminated begins anew.

    Returns the `source`, the `version` that rules, its `change` (`NONE`, `COSMETIC`, `SUPERVISION` or `JOBS`) and the
    `consequence`. A retry, and a cleared task, makes no new version of a spec that rules already.

    :param spec: the spec: an object, or the path of its file on the worker. (templated)
    :param source: the source's name; by default that of the spec. (templated)
    :param replacing: the version that it was made from; the task fails where another one rules by then.
    :param connect: whether the source is asked first, if the spec does other work than the one that rules.
    :param reason: why; by default the run. (templated)
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
        self.spec = spec
        self.replacing = replacing
        self.connect = connect

    def execute(self, context: Context) -> dict[str, Any]:
        """Submit it.

        :raises AirflowFailException: if it is wrong, does not fit the source, or another version rules.
        :raises CoordinationError: if the store or the source did not answer; a retry may help.
        """
        with failing_when_misconfigured():
            mapping = read_spec_file(self.spec)[0] if isinstance(self.spec, str) else self.spec
            source = self.source or IngestionSpec.read(mapping).source
            region = CoordinationHook(self.coordination_conn_id).settings.region
        check = checks_against_source(region, connect=self.connect)
        with self._coordinator(context, source) as coordinator:
            done = self._verbs(context, coordinator).submit(mapping, replacing=self.replacing, check=check)
        if done.unanswered:
            self.log.warning("source %s: %s: %s", source, UNANSWERED, done.unanswered)
        self.log.info("source %s: version %d rules: %s", source, done.version.version, done.consequence)
        return {
            "source": source,
            "version": done.version.version,
            "change": done.change.name,
            "consequence": done.consequence,
        }


class _OneOrAllOperator(_SupervisorOperator):
    """A verb for one supervisor, or for all of the connection. Where it is so already, nothing is done."""

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
        """Ask once.

        :raises AirflowFailException: if it makes no sense as the supervisor stands, or only a person can help.
        :raises CoordinationError: if the store did not answer; a retry may help.
        """
        if self.all_sources:
            return self._ask_all(context)
        source = self._named()
        with self._coordinator(context, source) as coordinator:
            # The retry of a task whose answer was lost finds that it is done.
            is_so = self._is_so(existing_status(coordinator.view))
            if not is_so:
                self._ask(self._verbs(context, coordinator))
        self.log.info("source %s: %s", source, "it was so before; nothing was done" if is_so else "done")
        return {"done": [] if is_so else [source], "unchanged": {source: "it was so before"} if is_so else {}}

    def _ask_all(self, context: Context) -> dict[str, Any]:
        with failing_when_misconfigured():
            hook = CoordinationHook(self.coordination_conn_id)
            settings, owner, store = hook.settings, owner_of_try(context), hook.get_conn()
            with closing(store):
                store.initialize()

                def verbs_of(source: str) -> SupervisorVerbs:
                    return self._verbs(context, settings.coordinator(source, owner, store=store))

                outcomes = list(for_all(supervised_sources(store, settings.prefix), verbs_of, self._ask))
        return self._summary(outcomes)

    def _summary(self, outcomes: Sequence[VerbOutcome]) -> dict[str, Any]:
        if failed := [outcome for outcome in outcomes if outcome.has_failed]:
            raise CoordinationError(
                f"it failed for {len(failed)} of {len(outcomes)} supervisors: {failed[0].source!r}: {failed[0].detail}"
            )
        for outcome in outcomes:
            self.log.info("source %s: %s", outcome.source, "done" if outcome.is_done else outcome.detail)
        return {
            "done": [outcome.source for outcome in outcomes if outcome.is_done],
            "unchanged": {outcome.source: outcome.detail for outcome in outcomes if not outcome.is_done},
        }

    @abstractmethod
    def _ask(self, verbs: SupervisorVerbs) -> object:
        """Ask for it."""

    def _is_so(self, status: Mapping[str, Any]) -> bool:
        """Return whether it is so already, by the status; what can be asked again and again never is."""
        return False


class SuspendSupervisorOperator(_OneOrAllOperator):
    """Suspends a supervisor: its jobs deliver what they have read and end, and none is started until it is resumed.

    Returns the sources where that was `done`, and those that are `unchanged`, each with the reason: one that is
    suspended already stays so as it is.

    :param source: the source's name. (templated)
    :param all_sources: all supervisors of the connection, instead of one.
    :param reason: why; by default the run. (templated)
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    """

    def _ask(self, verbs: SupervisorVerbs) -> object:
        return verbs.suspend()

    def _is_so(self, status: Mapping[str, Any]) -> bool:
        return status["suspended"] is not None and status["terminated"] is None


class ResumeSupervisorOperator(_OneOrAllOperator):
    """Lets a suspended supervisor go on.

    Returns the sources where that was `done`, and those that are `unchanged`, each with the reason.

    :param source: the source's name. (templated)
    :param all_sources: all supervisors of the connection, instead of one.
    :param reason: why; by default the run. (templated)
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    """

    def _ask(self, verbs: SupervisorVerbs) -> object:
        return verbs.resume()

    def _is_so(self, status: Mapping[str, Any]) -> bool:
        return status["suspended"] is None and status["terminated"] is None


class TerminateSupervisorOperator(_OneOrAllOperator):
    """Terminates a supervisor: its jobs deliver what they have read and end, and none is started any more.

    Returns the sources where that was `done`, and those that are `unchanged`, each with the reason. A spec that is
    submitted later goes on where this one ended.

    :param source: the source's name. (templated)
    :param all_sources: all supervisors of the connection, instead of one.
    :param reason: why; by default the run. (templated)
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    """

    def _ask(self, verbs: SupervisorVerbs) -> object:
        return verbs.terminate()

    def _is_so(self, status: Mapping[str, Any]) -> bool:
        return status["terminated"] is not None


class ResetSupervisorOperator(_OneOrAllOperator):
    """Reads the source of a supervisor anew, or some of its partitions; jobs go on from the new positions.

    Returns how many partitions were `reset`, `created` and `removed`, how many were `left` as they are, and the first
    of these with the reason as `left_because`. Of all sources it returns those where it was `done`, and those that are
    `unchanged`, each with the reason. A retry, and a cleared task, resets again.

    :param source: the source's name. (templated)
    :param all_sources: all supervisors of the connection, instead of one.
    :param to: where all of it is read from: `"earliest"`, `"latest"`, or an instant (an aware datetime or its ISO 8601
        text). (templated)
    :param positions: where these partitions alone are read from instead: a position for each key, or for what people
        call it, such as the id of a shard. (templated)
    :param reason: why; by default the run. (templated)
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    """

    template_fields: Sequence[str] = ("to", "positions", *FIELDS)

    def __init__(
        self,
        *,
        to: datetime | str = EARLIEST,
        positions: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if self.all_sources and positions is not None:
            raise ValueError("'positions' are those of a single source; give 'source', not 'all_sources'")
        self.to = to
        self.positions = positions

    def execute(self, context: Context) -> dict[str, Any]:
        """Reset once.

        :raises AirflowFailException: if it makes no sense as the supervisor stands, or only a person can help.
        :raises CoordinationError: if the store or the source did not answer, or a partition could not be reset; a retry
            may help.
        """
        if self.all_sources:
            return self._ask_all(context)
        source = self._named()
        with self._coordinator(context, source) as coordinator:
            verbs = self._verbs(context, coordinator)
            done = verbs.reset(self.to, self.positions, default_region=self._region())
        for warning in done.warnings:
            self.log.warning("source %s: %s", source, warning)
        if done.failed:
            raise PartitionUpdateError(done.summary(source))
        return {
            "source": source,
            **{name: sum(each.action == name for each in done.outcomes) for name in ("reset", "created", "removed")},
            "left": len(done.left),
            "left_because": dict(list(done.left.items())[:10]),
        }

    def _ask(self, verbs: SupervisorVerbs) -> object:
        return verbs.reset_whole(self.to, default_region=self._region())

    def _region(self) -> str | None:
        return CoordinationHook(self.coordination_conn_id).settings.region


class HandOverSupervisorOperator(_OneOrAllOperator):
    """Has every job of a supervisor hand over to a new one now, as at the end of its time.

    Returns the sources where that was `done`, and those that are `unchanged`, each with the reason. It does not wait: a
    job ends once its successor runs.

    :param source: the source's name. (templated)
    :param all_sources: all supervisors of the connection, instead of one.
    :param reason: why; by default the run. (templated)
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    """

    def _ask(self, verbs: SupervisorVerbs) -> object:
        return verbs.hand_over()


class ListSupervisorsOperator(BaseOperator):
    """Returns how every supervisor of a connection stands, those first that need a person.

    Each is the object that the command `supervisor list --json` prints.

    :param coordination_conn_id: the connection of type `coordination`. (templated)
    """

    template_fields: Sequence[str] = ("coordination_conn_id",)
    ui_color = _SupervisorOperator.ui_color

    def __init__(self, *, coordination_conn_id: str = CoordinationHook.default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.coordination_conn_id = coordination_conn_id

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Read them once.

        :raises AirflowFailException: if only a person can help.
        """
        with failing_when_misconfigured():
            hook = CoordinationHook(self.coordination_conn_id)
            settings, store = hook.settings, hook.get_conn()
            with closing(store):
                store.initialize()
                return all_statuses(store, settings.prefix, lambda source: settings.view(source, store=store))


class _ReadingOperator(_SupervisorOperator):
    """What is read of one supervisor."""

    template_fields: Sequence[str] = ("source", "coordination_conn_id")

    def __init__(
        self, *, source: str, coordination_conn_id: str = CoordinationHook.default_conn_name, **kwargs: Any
    ) -> None:
        super().__init__(source=source, reason=None, coordination_conn_id=coordination_conn_id, **kwargs)

    def execute(self, context: Context) -> Any:
        """Read it once.

        :raises AirflowFailException: if the source has no supervisor, or only a person can help.
        """
        with failing_when_misconfigured(), _failing_when_refused():
            view = CoordinationHook(self.coordination_conn_id).view(self._named())
            with closing(view.store):
                return self._read(view)

    @abstractmethod
    def _read(self, view: SourceView) -> Any:
        """Read it."""


class SupervisorStatusOperator(_ReadingOperator):
    """Returns how a supervisor stands: the object that the command `supervisor status --json` prints.

    :param source: the source's name. (templated)
    :param must_be_healthy: fail the task if it is not.
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    """

    def __init__(self, *, must_be_healthy: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.must_be_healthy = must_be_healthy

    def execute(self, context: Context) -> dict[str, Any]:
        """Read it once.

        :raises AirflowFailException: if the source has no supervisor, or only a person can help.
        :raises SupervisionError: if it has to be healthy, and is not; a retry may find that it is.
        """
        found: dict[str, Any] = super().execute(context)
        if self.must_be_healthy and not found["healthy"]:
            errors = found["errors"]
            because = f": {errors[0]['message']}" if errors else ""
            raise SupervisionError(f"the supervisor of source {self.source!r} is {found['detailed_state']}{because}")
        return found

    def _read(self, view: SourceView) -> dict[str, Any]:
        return existing_status(view)


class SupervisorHistoryOperator(_ReadingOperator):
    """Returns the latest versions of a supervisor's spec, the latest first: who submitted each, why, what it changed.

    :param source: the source's name. (templated)
    :param limit: at most this number.
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    """

    def __init__(self, *, limit: int = 20, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if limit < 1:
            raise ValueError(f"'limit' must be at least 1; got {limit}")
        self.limit = limit

    def _read(self, view: SourceView) -> list[dict[str, Any]]:
        return read_history(view, self.limit)


class SupervisorParseErrorsOperator(_ReadingOperator):
    """Returns the bad records that the jobs of a supervisor reported in the last day, the latest first.

    :param source: the source's name. (templated)
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    """

    def _read(self, view: SourceView) -> list[dict[str, Any]]:
        existing_status(view)  # a name that is misspelt is an error
        return read_parse_errors(view)


@contextmanager
def _failing_when_refused() -> Iterator[None]:
    """Fail the task without a retry where what is asked makes no sense as the supervisor stands."""
    try:
        yield
    except SupervisionError as error:
        raise AirflowFailException(str(error)) from None
