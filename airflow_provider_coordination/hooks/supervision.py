"""How a supervisor in Airflow queries sources: through the connections that specs name.

The task that takes turns uses it, and the triggerer's pollers, which only read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError, SourceError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.hooks.aws import AirflowConnections
from airflow_provider_coordination.hooks.limited_calls import LimitedCalls
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.sources.reads import Reads, Synced
from airflow_provider_coordination.supervisor.observer import Probe
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.supervision import Claimant
from airflow_provider_coordination.supervisor.turn import Supervisor

REUSED = timedelta(minutes=5)
"""How long a client of a source is reused before connections are read again and a new client is made."""
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
        return self._reads is not None and not isinstance(self._reads, Synced)

    @override
    def discover_partitions(self) -> None:
        reads, connections = self._reads, self._connections
        if reads is None:
            return
        with self._refusals():
            if isinstance(reads, Synced):
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
            self._service = _Service(reads=reads, client=reads.source_kind().service(reads.settings), made_at=now)
        return self._service

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Turn a source's refusals into lost contact, which a supervisor may regain."""
        try:
            yield
        except ConfigurationError as error:
            self._service = None
            raise SourceError(str(error)) from error
        except Exception:
            self._service = None
            raise
