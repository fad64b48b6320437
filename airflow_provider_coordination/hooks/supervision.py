"""How supervisors and submissions query sources: through the connections that specs name, and within a time limit.

The task that takes turns uses it, and the triggerer's pollers, which only read. A spec is checked against its source
before it is submitted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_provider_coordination.audit.source_audit import dead_letter_sink
from airflow_provider_coordination.aws import SharedClients
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError, SourceError, SupervisorNotFoundError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.hooks.connections import AirflowConnections, airflow_connection
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.sources.peek import Peek, PeekLimits
from airflow_provider_coordination.sources.reads import Reads
from airflow_provider_coordination.sources.source_kind import Settings, SourceKind
from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.sink_settings import SinkSettings, access_of, check_sinks
from airflow_provider_coordination.spark.sinks import check_freshness
from airflow_provider_coordination.spark.writes import landing_path_of, sinks_of
from airflow_provider_coordination.supervisor.observer import Probe
from airflow_provider_coordination.supervisor.operations import SourceCheck
from airflow_provider_coordination.supervisor.preview import Preview, preview_of
from airflow_provider_coordination.supervisor.reading import no_supervisor
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.spec_keys import reads_kind_of
from airflow_provider_coordination.supervisor.store import SupervisionStore
from airflow_provider_coordination.supervisor.submission_checks import check_fits, implausible_times
from airflow_provider_coordination.supervisor.supervision import Claimant
from airflow_provider_coordination.supervisor.turn import Supervisor

if TYPE_CHECKING:
    from airflow_provider_coordination.spark.previewed_payloads import PayloadPreview

RESPONSE_SECONDS = 20.0
"""A source that takes longer counts as unavailable: a user or a turn is waiting."""


def _service(kind: SourceKind, settings: Settings) -> Any:
    return kind.service(settings)


def check_against_source(
    spec: IngestionSpec,
    default_region: str | None = None,
    service: Callable[[SourceKind, Settings], Any] = _service,
    response_seconds: float = RESPONSE_SECONDS,
) -> tuple[str, ...]:
    """Check that the sinks have separate locations, that the source exists, and that its data fits the schema.

    The check leases and writes nothing. Of a stream it reads a few records.

    :param default_region: the AWS region to use if nothing else names one; by default the region of the spec's
        coordination connection, if that is defined here.
    :param service: returns the client that queries the source.
    :param response_seconds: how long to wait for the source, in seconds.
    :returns: warnings about connections of jobs that are not defined here, and about implausible times in the records.
    :raises ConfigurationError: naming the field, the value and the remedy.
    :raises SourceError: if the source does not respond.
    """
    connections = AirflowConnections(default_region or _region_of_jobs(spec))
    sinks = sinks_of(spec.sinks, connections)
    landing_path = spec.ingestion.landing_path or landing_path_of(spec.sinks)
    check_sinks(sinks, spec.ingestion.bad_records, spec.ingestion.acknowledgments, landing_path)
    check_freshness(spec.ingestion.rounds.freshness, sinks)
    reads = spec.ingestion.reads.connect(connections).reads
    kind: SourceKind = reads.source_kind()
    reads.check()
    try:
        payloads = LimitedCalls().make(
            lambda: kind.sample(service(kind, reads.settings), reads.settings), response_seconds
        )
    except ConfigurationError as error:
        raise ConfigurationError(f"spec: field 'reads.{reads_kind_of(spec.ingestion.reads)}': {error}") from error
    warnings = list(_undefined_connections(spec))
    if spec.ingestion.schema is not None:
        check_fits(spec.ingestion.schema, payloads, spec.ingestion.time_formats)
        warnings += implausible_times(
            spec.ingestion.schema, payloads, spec.ingestion.time_formats, spec.supervise.event_time
        )
    return tuple(warnings)


def preview_source(
    spec: IngestionSpec,
    limits: PeekLimits | None = None,
    default_region: str | None = None,
    service: Callable[[SourceKind, Settings], Any] = _service,
    response_seconds: float = RESPONSE_SECONDS,
) -> Preview:
    """Read a few records of a spec's source, and show them with the columns that they get.

    It leases and writes nothing, and needs neither a store nor Spark.

    :param limits: how much is read at most.
    :param default_region: the AWS region to use if nothing else names one; by default the region of the spec's
        coordination connection, if that is defined here.
    :param service: returns the client that queries the source.
    :param response_seconds: how long to wait for the source, in seconds.
    :raises ConfigurationError: naming the field, the value and the remedy.
    :raises SourceError: if the source does not respond.
    """
    connections = AirflowConnections(default_region or _region_of_jobs(spec))
    connected = spec.ingestion.reads.connect(connections)
    reads, peek = connected.reads, Peek(limits or PeekLimits())
    kind: SourceKind = reads.source_kind()
    reads.check()
    payloads = _payload_preview(spec, connections)

    def read() -> Preview:
        kind.peek(service(kind, reads.settings), reads.settings, peek, connected.supplier)
        return preview_of(spec, peek, payloads)

    return LimitedCalls().make(read, response_seconds)


def _payload_preview(spec: IngestionSpec, connections: AirflowConnections) -> PayloadPreview | None:
    """Return what decodes payloads; None if the spec says nothing about them.

    :raises ConfigurationError: if it is wrong, or a library that it needs is missing here.
    """
    ingestion = spec.ingestion
    payload = ingestion.payload.connected(connections)
    if ingestion.schema is None and not payload.is_decoded:
        return None
    access = Access() if payload.protobuf is None else access_of(sinks_of(spec.sinks, connections))
    for module in payload.modules:
        if find_spec(module.partition(".")[0]) is None:
            raise ConfigurationError(
                f"spec: field 'payload.{payload.format}' needs {module!r}, which is missing on this machine: install "
                f"airflow-provider-coordination[{payload.format}]"
            )
    from airflow_provider_coordination.spark.previewed_payloads import PayloadPreview  # loads Arrow

    return PayloadPreview(payload, ingestion.schema, ingestion.time_formats or {}, access)


def _undefined_connections(spec: IngestionSpec) -> Iterator[str]:
    """Yield a warning for each connection of jobs that is not defined here; those of sources and sinks are errors."""
    for field, conn_id in (
        ("tuning.spark.conn_id", spec.tuning.spark.conn_id),
        ("tuning.coordination_conn_id", spec.tuning.coordination_conn_id),
    ):
        remedy = "define it where the DAG of supervised_ingestion runs, or correct the name"
        try:
            airflow_connection(conn_id, f"field {field!r}: connection {conn_id!r}", remedy)
        except ConfigurationError as error:
            yield str(error)


def checks_against_source(default_region: str | None = None, *, connect: bool = True) -> SourceCheck | None:
    """Return the check of a spec before its submission; None if the source must not be queried.

    :param default_region: the AWS region to use if nothing else names one.
    :param connect: whether to query the source and its connections.
    """
    return partial(check_against_source, default_region=default_region) if connect else None


def written_locations(spec: IngestionSpec) -> tuple[list[str], Access]:
    """Return the locations that a spec's jobs write files to, without those below another one, and how to access them.

    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    sinks = sinks_of(spec.sinks, AirflowConnections(_region_of_jobs(spec)))
    landing_path = spec.ingestion.landing_path or landing_path_of(spec.sinks)
    dead_letter_path = spec.ingestion.bad_records.dead_letter_path
    locations = [*(sink.files or sink.location for sink in sinks), landing_path, dead_letter_path or landing_path]
    separate = [path for path in dict.fromkeys(locations) if not any(path.startswith(f"{each}/") for each in locations)]
    return separate, access_of(sinks)


def spec_of_supervised(view: SourceView) -> IngestionSpec:
    """Return the latest spec of a supervised source.

    :param view: an initialized view of the source.
    :raises SupervisorNotFoundError: if no spec was ever submitted.
    :raises ConfigurationError: if it was written by another version of the package, and cannot be read.
    """
    latest = next((each.spec for each in SupervisionStore(view).history() if each.spec is not None), None)
    if latest is None:
        raise SupervisorNotFoundError(no_supervisor(view.source))
    return IngestionSpec.read(latest)


def sinks_of_supervised(view: SourceView) -> list[SinkSettings]:
    """Return the sinks of a supervised source by its latest spec, the dead letters included.

    :param view: an initialized view of the source.
    :raises SupervisorNotFoundError: if no spec was ever submitted.
    :raises ConfigurationError: if a connection is not defined here.
    """
    spec = spec_of_supervised(view)
    sinks = list(sinks_of(spec.sinks, AirflowConnections(_region_of_jobs(spec))))
    path = spec.ingestion.bad_records.dead_letter_path
    return [*sinks, *([] if path is None else [dead_letter_sink(path)])]


def _region_of_jobs(spec: IngestionSpec) -> str | None:
    with suppress(ConfigurationError):  # a user of the store's URL needs no connection for it
        return CoordinationHook(spec.tuning.coordination_conn_id).settings.region
    return None


T = TypeVar("T")


class LimitedCalls:
    """Makes calls one after the other, each in a thread of its own. At most one call is left without a result."""

    def __init__(self) -> None:
        self._last: Future[Any] | None = None

    def make(self, call: Callable[[], T], seconds: float) -> T:
        """Return the result of a call.

        :param call: the call.
        :param seconds: how long to wait for its result.
        :raises SourceError: if there is no result in time, or an earlier call has none yet.
        :raises Exception: the error of the call.
        """
        if self._last is not None and not self._last.done():
            raise SourceError("the source has still not responded to an earlier request; check the source and network")
        result = self._last = Future[T]()
        threading.Thread(target=_run, args=(call, result), name="query of a source", daemon=True).start()
        wait([result], timeout=seconds)
        if not result.done():
            raise SourceError(f"the source did not respond within {seconds:g} s; check the source and the network")
        return result.result()


def _run(call: Callable[[], Any], result: Future[Any]) -> None:
    try:
        result.set_result(call())
    except BaseException as error:  # the waiting thread raises it
        result.set_exception(error)


REUSED = timedelta(minutes=5)
"""How long a client of a source is reused before connections are read again and a new client is made."""
CLIENTS = SharedClients(REUSED)
MS = timedelta(milliseconds=1)
MIN_RESPONSE_TIME = timedelta(seconds=5)
MAX_RESPONSE_TIME = timedelta(seconds=10)
"""The limits of the time that a source has to respond to a poll: half a period of its supervisor."""


def supervisor_of(coordinator: SourceCoordinator, claimant: Claimant, region: str | None) -> Supervisor:
    """Return the supervisor of a source.

    :param coordinator: an initialized coordinator of the source, for the supervisor.
    :param claimant: the claimant that supervises.
    :param region: the AWS region to use if nothing else names one.
    """
    return Supervisor(coordinator, claimant, probe=SourceProbe(coordinator, region))


@dataclass(frozen=True, kw_only=True)
class _Service:
    """A client of a source, which is reused for a while."""

    reads: ReadsSettings
    client: Any
    has_news: Callable[[], bool] | None
    made_at: float


class SourceProbe(Probe):
    """Queries the source itself; see `Probe`.

    :param coordinator: an initialized coordinator of the source, for the supervisor.
    :param region: the AWS region to use if nothing else names one.
    """

    def __init__(self, coordinator: SourceCoordinator, region: str | None = None) -> None:
        self._coordinator = coordinator
        self._connections = AirflowConnections(region)
        self._spec: IngestionSpec | None = None
        self._reads: Reads | None = None
        self._service: _Service | None = None
        self._calls = LimitedCalls()

    @override
    def follow(self, spec: IngestionSpec) -> None:
        if spec is not self._spec:
            self._spec, self._reads, self._service = spec, spec.ingestion.reads, None

    @property
    @override
    def must_discover_partitions(self) -> bool:
        return self._reads is not None and not self._reads.is_synced

    @override
    def discover_partitions(self) -> None:
        reads, connections = self._reads, self._connections
        if reads is None:
            return
        with self._refusals():
            if reads.is_synced:
                reads.sync(self._coordinator, connections)
            else:  # it is enough if another worker runs the supplier
                self._coordinator.supply(reads.connect(connections).supplier(self._coordinator), wait_timeout=None)

    @override
    def count(self) -> int | None:
        with self._refusals():
            service = self._current_service()
            if service is None:
                return None
            kind, reads = service.reads.source_kind(), service.reads
            return self._calls.make(
                lambda: kind.open_partitions(service.client, reads.settings), self._response_seconds
            )

    @override
    def lag(self, partition: Partition) -> int | None:
        with self._refusals():
            service = self._current_service()
            if service is None:
                return None
            kind = service.reads.source_kind()
            lag = self._calls.make(lambda: kind.unread_lag(service.client, partition), self._response_seconds)
        return None if lag is None else lag // MS

    @override
    def confirmed_progress(self, partition: Partition) -> Mapping[str, Any] | None:
        with self._refusals():
            service = self._current_service()
            if service is None:
                return None
            kind = service.reads.source_kind()
            return self._calls.make(lambda: kind.confirmed_progress(service.client, partition), self._response_seconds)

    @override
    def has_news(self) -> bool | None:
        with self._refusals():
            service = self._current_service()
            if service is None or service.has_news is None:
                return None
            return self._calls.make(service.has_news, self._response_seconds)

    @property
    def _response_seconds(self) -> float:
        """How long a call may take, so that a source that does not respond is noticed at each poll."""
        assert self._spec is not None
        return min(max(self._spec.supervise.period / 2, MIN_RESPONSE_TIME), MAX_RESPONSE_TIME).total_seconds()

    def _current_service(self) -> _Service | None:
        if self._reads is None:
            return None
        now = self._coordinator.clock.monotonic()
        if self._service is None or now - self._service.made_at >= REUSED.total_seconds():
            reads = self._reads.connect(self._connections).reads
            self._service = _Service(
                reads=reads,
                client=reads.source_kind().service(reads.settings, CLIENTS),
                has_news=self._reads.news_query(self._connections),
                made_at=now,
            )
        return self._service

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Turn a source's refusals into lost contact, which a supervisor may regain."""
        try:
            yield
        except Exception as error:
            self._service = None
            CLIENTS.clear()
            if isinstance(error, ConfigurationError):
                raise SourceError(str(error)) from error
            raise
