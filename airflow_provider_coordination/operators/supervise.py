"""Supervising a source as a task: it takes a turn, and waits in the triggerer until the next one is needed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowException

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.error_events import ErrorEvent
from airflow_provider_coordination.coordination.errors import (
    ConfigurationError,
    CoordinationError,
    PartitionUpdateError,
    SourceError,
    SupervisedElsewhereError,
)
from airflow_provider_coordination.coordination.known_sources import known_sources
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.storable_text import storable
from airflow_provider_coordination.hooks.coordination import ConnectionSettings, CoordinationHook
from airflow_provider_coordination.hooks.source_checks import checks_against_source
from airflow_provider_coordination.hooks.supervision import supervisor_of
from airflow_provider_coordination.links.leases import LeasesLink
from airflow_provider_coordination.operators.job_follower import JobFollower
from airflow_provider_coordination.operators.launcher import SparkLauncher, show_ended
from airflow_provider_coordination.stores import open_store
from airflow_provider_coordination.supervisor.operations import UNANSWERED, SupervisorVerbs
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.spec_file import read_spec_file
from airflow_provider_coordination.supervisor.store import SupervisionStore
from airflow_provider_coordination.supervisor.supervision import Claimant, Supervision
from airflow_provider_coordination.supervisor.turn import Supervisor, Turn, task_of
from airflow_provider_coordination.triggers.events import ERROR
from airflow_provider_coordination.triggers.supervisor import MISSING, SupervisorTrigger, mark_of


class SuperviseOperator(BaseOperator):
    """Supervises a source by the spec that was last submitted: the task of a DAG on `@continuous`.

    It takes a turn, which starts and ends jobs where that is needed, and defers; the triggerer looks at the source and
    wakes it for the next turn. The jobs belong to the source, not to the task: a run that ends, is cleared or marked by
    hand leaves them alone, and the next run goes on with them. The task ends once `task_duration` of the spec has
    passed since its run began, so that each run has a readable log. While the source is suspended, or the supervisor is
    terminated, it stays deferred.

    A spec file is submitted whenever what it says has changed since the last version that came from a file. So a spec
    that was submitted otherwise stays in force until the file is edited. Where the file is missing or wrong, or does
    not fit the source, the stored spec stays in force, and the supervisor's status has the error.

    Returns a small summary: `source`, `state`, `spec_version` and the owners of the `jobs`.

    :param source: the source's name, where its spec is submitted by command line or HTTP.
    :param spec_file: the path of the file that has the spec, instead of `source`.
    :param connect: whether the source is asked before a spec from the file is submitted.
    :param coordination_conn_id: the connection of type `coordination`; that of the file's spec wins.
    """

    ui_color = "#f5e6cc"
    operator_extra_links = (LeasesLink(),)

    def __init__(
        self,
        *,
        source: str | None = None,
        spec_file: str | None = None,
        connect: bool = True,
        coordination_conn_id: str = CoordinationHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        if (source is None) == (spec_file is None):
            raise ValueError("give either 'source', whose spec is submitted elsewhere, or 'spec_file'")
        super().__init__(**kwargs)
        self.source = source
        self.spec_file = spec_file
        self.connect = connect
        self.coordination_conn_id = coordination_conn_id
        self.source_worked_on = source or ""

    def execute(self, context: Context) -> dict[str, Any]:
        """Take a turn, then defer.

        :raises AirflowException: if the supervisor cannot work now; a retry goes on.
        """
        return self._supervise(context, {})

    def execute_complete(self, context: Context, event: dict[str, Any] | None = None) -> dict[str, Any]:
        """Take the next turn after a deferral.

        :param event: the payload of the trigger's event.
        :raises AirflowException: if the supervisor cannot work now; a retry goes on.
        """
        if event is not None and event.get("status") == ERROR:
            raise AirflowException(event.get("message"))
        return self._supervise(context, event or {})

    def _supervise(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self._take_turn(context, event)
        except (ConfigurationError, SourceError) as error:  # somebody may put it right at any time: a retry finds out
            raise AirflowException(str(error)) from None

    def _take_turn(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        claimant = claimant_of(context)
        file = None if self.spec_file is None else SpecFile.read(self.spec_file)
        if file is not None and file.spec is not None:
            self.coordination_conn_id = file.spec.tuning.coordination_conn_id
        else:
            self.coordination_conn_id = event.get("coordination_conn_id", self.coordination_conn_id)
        connection = CoordinationHook(self.coordination_conn_id).settings
        source = self.source or event.get("source") or _source_of(file, connection, claimant.dag_id)
        self.source_worked_on = source
        coordinator = connection.coordinator(source, claimant.owner)
        with closing(coordinator.store):
            supervisor = supervisor_of(coordinator, claimant, connection.region)
            try:
                self._submit(file, coordinator, claimant, connection.region)
                turn = supervisor.turn(SparkLauncher(connection=connection, source=source, context=context))
            except SupervisedElsewhereError as error:
                if _is_other_dag(supervisor.store, claimant):
                    raise AirflowException(str(error)) from None
                self.log.info("%s", error)
                return {"source": source, "state": "supervised by a later run"}
            show_ended(JobFollower(connection=connection, source=source, task=task_of(source)))
            until = _end_of_run(claimant, supervisor, coordinator.view)
        if until is not None and until <= coordinator.clock.now():
            return _summary(source, turn)
        self.defer(
            trigger=SupervisorTrigger.of(
                claimant,
                source,
                coordination_conn_id=self.coordination_conn_id,
                until=until,
                spec_file=self.spec_file,
                file_mark=event.get("file_mark", MISSING if file is None else file.mark),
            ),
            method_name=self.execute_complete.__name__,
        )
        raise AssertionError  # deferring raises

    def _submit(
        self, file: SpecFile | None, coordinator: SourceCoordinator, claimant: Claimant, region: str | None
    ) -> None:
        """Submit what the file says, if that is new; note in the status what is wrong with it.

        :raises ConfigurationError: if it cannot be carried out, and no spec is stored.
        :raises SourceError: if the source does not answer, and no spec is stored.
        """
        if file is None:
            return
        store = SupervisionStore(coordinator.view)
        stored = store.get()
        error: ConfigurationError | SourceError | None = file.error
        if error is None and (stored is None or stored.supervision.file_digest != file.digest):
            verbs = SupervisorVerbs(coordinator, by=claimant.dag_id, reason=f"file {Path(file.path).name}")
            check = checks_against_source(region, connect=self.connect)
            try:
                done = verbs.submit(file.mapping, file_digest=file.digest, check=check)
            except (ConfigurationError, SourceError) as refused:
                error = refused.__class__(f"file {file.path!r}: {refused}")
            else:
                if done.unanswered:
                    self.log.warning("source=%s: %s: %s", store.source, UNANSWERED, done.unanswered)
                number, path = done.version.version, file.path
                self.log.info("source=%s: version %d of the spec rules, from %s", store.source, number, path)
        if error is None:
            return
        if stored is None or not stored.supervision.spec_version:
            raise error
        self.log.error("the stored spec stays in force: %s", error)
        _note(store, claimant, error, coordinator.clock.now())


@dataclass(frozen=True, kw_only=True)
class SpecFile:
    """A spec file as it was read.

    :param path: where it is.
    :param mark: changes when the file does.
    :param mapping: the spec as it is written; empty if it cannot be read.
    :param digest: of what it says; empty if it cannot be read.
    :param spec: the same, checked; None if it is wrong.
    :param error: what is wrong with it; None if nothing is.
    """

    path: str
    mark: str
    mapping: Mapping[str, Any]
    digest: str = ""
    spec: IngestionSpec | None = None
    error: ConfigurationError | None = None

    @classmethod
    def read(cls, path: str) -> SpecFile:
        """Return what a file says; it does not raise if that is wrong."""
        mark = mark_of(path)  # an edit in between is seen as one once more
        mapping: Mapping[str, Any] = {}
        try:
            mapping, digest = read_spec_file(path)
        except ConfigurationError as error:
            return cls(path=path, mark=mark, mapping=mapping, error=error)
        try:
            return cls(path=path, mark=mark, mapping=mapping, digest=digest, spec=IngestionSpec.read(mapping))
        except ConfigurationError as error:
            named = ConfigurationError(f"file {path!r}: {error}")
            return cls(path=path, mark=mark, mapping=mapping, error=named)


def claimant_of(context: Context) -> Claimant:
    """Return who supervises: this try of the task, the same in all of its turns."""
    ti: Any = context["ti"]
    run: Any = context["dag_run"]
    return Claimant(
        owner=":".join(("airflow", ti.dag_id, ti.run_id, ti.task_id, "-1", str(ti.try_number), "supervisor")),
        dag_id=ti.dag_id,
        run_at=run.start_date or run.run_after,
        try_number=ti.try_number,
    )


def _source_of(file: SpecFile | None, connection: ConnectionSettings, dag_id: str) -> str:
    """Return the source that a file's spec names; if it names none, that which this DAG supervised last.

    :raises ConfigurationError: if the file is wrong, and the DAG never supervised anything.
    """
    assert file is not None
    if file.spec is not None:
        return file.spec.source
    with closing(open_store(connection.store)) as store:
        for source in known_sources(store, connection.prefix):
            supervision = SupervisionStore(connection.view(source, store=store)).get()
            if supervision is not None and supervision.supervision.dag_id == dag_id:
                return source
    assert file.error is not None
    raise file.error


def _is_other_dag(store: SupervisionStore, claimant: Claimant) -> bool:
    stored = store.get()
    return stored is not None and stored.claimant is not None and stored.claimant.dag_id != claimant.dag_id


def _note(store: SupervisionStore, claimant: Claimant, error: CoordinationError, now: datetime) -> None:
    """Note an error for the status, once."""
    stored = store.acquire(claimant)
    memory, message = stored.supervision, storable(str(error))
    if any(known.message == message for known in memory.health.errors):
        return
    is_of_stream = isinstance(error, SourceError)
    event = ErrorEvent(at=now, error_class=type(error).__name__, message=message, is_stream_error=is_of_stream)
    with suppress(PartitionUpdateError):  # the next turn notes it
        store.save(stored, replace(memory, health=memory.health.noting(event)))


def _end_of_run(claimant: Claimant, supervisor: Supervisor, view: SourceView) -> datetime | None:
    """Return when the time of the run is over; None while nothing runs: one run says that nothing happens."""
    current = supervisor.store.current()
    if current is None or current.spec is None or view.suspension() is not None:
        return None
    with suppress(ConfigurationError):  # by a newer version of this package, perhaps
        return claimant.run_at + IngestionSpec.read(current.spec).supervise.task_duration
    return None


def _summary(source: str, turn: Turn) -> dict[str, Any]:
    memory: Supervision = turn.supervision
    return {
        "source": source,
        "state": memory.health.state.value,
        "spec_version": memory.spec_version,
        "jobs": [job.owner for job in memory.jobs],
    }
