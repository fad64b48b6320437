"""How a supervisor that lives in Airflow reads specs and asks sources: by Airflow's connections.

The task that takes turns uses it, and so does the triggerer's watcher, which only looks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError, SourceError
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.operators.reads.reads import Reads, Synced
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.supervisor.settings import SuperviseSettings
from airflow_provider_coordination.supervisor.spec import Change, IngestionSpec, change_between
from airflow_provider_coordination.supervisor.supervision import Claimant
from airflow_provider_coordination.supervisor.turn import Supervisor

REUSED = timedelta(minutes=5)
"""How long a client of a source is used, before connections are read again and another one is made."""
MS = timedelta(milliseconds=1)


def supervisor_of(coordinator: SourceCoordinator, claimant: Claimant, region: str | None) -> Supervisor:
    """Return the supervisor of a source.

    :param coordinator: of the source, initialized, for the supervisor.
    :param claimant: who supervises.
    :param region: the AWS region where nothing else names one.
    """
    return Supervisor(coordinator, claimant, probe=SourceProbe(coordinator, region), specs=StoredSpecs())


class StoredSpecs:
    """Reads stored specs; see `SpecReader`. It keeps those that it has read: there are few, and they never change."""

    def __init__(self) -> None:
        self._read: list[tuple[Mapping[str, Any], IngestionSpec]] = []

    def settings(self, spec: Mapping[str, Any]) -> SuperviseSettings:
        """See `SpecReader.settings`."""
        return self._spec(spec).supervise

    def changes_jobs(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
        """See `SpecReader.changes_jobs`."""
        return change_between(self._spec(old), self._spec(new)) is Change.JOBS

    def _spec(self, mapping: Mapping[str, Any]) -> IngestionSpec:
        for known, spec in self._read:
            if known is mapping:
                return spec
        spec = IngestionSpec.read(mapping)
        self._read = [*self._read[-7:], (mapping, spec)]
        return spec


@dataclass(kw_only=True)
class _Service:
    """What asks a source, for a while."""

    reads: ReadsSettings
    client: Any
    made_at: float


@dataclass
class SourceProbe:
    """Asks the source itself, by the connections that the spec names; see `Probe`.

    :param coordinator: of the source, initialized, for the supervisor.
    :param region: the AWS region where nothing else names one.
    """

    coordinator: SourceCoordinator
    region: str | None = None
    _spec: Mapping[str, Any] | None = None
    _reads: Reads | None = None
    _period: timedelta = timedelta(0)
    _service: _Service | None = field(default=None, repr=False)
    _counted: tuple[float, int | None] | None = None

    def follow(self, spec: Mapping[str, Any]) -> None:
        """See `Probe.follow`."""
        if spec is not self._spec:
            read = IngestionSpec.read(spec)
            self._spec, self._reads, self._period = spec, read.reads_object(), read.supervise.period
            self._service = self._counted = None

    @property
    def looks_for_partitions(self) -> bool:
        """See `Probe.looks_for_partitions`."""
        return self._reads is not None and not isinstance(self._reads, Synced)

    def look_for_partitions(self) -> None:
        """See `Probe.look_for_partitions`."""
        if self._reads is None:
            return
        with self._refusals():
            if isinstance(self._reads, Synced):
                self._reads.sync(self.coordinator, self.region)
            else:  # another worker that looks is enough
                connected = self._reads.connect(self.region)
                self.coordinator.supply(connected.supplier(self.coordinator), patience=None)

    def count(self) -> int | None:
        """See `Probe.count`; the source is asked once a period."""
        now = self.coordinator.clock.monotonic()
        if self._counted is None or now - self._counted[0] >= self._period.total_seconds():
            with self._refusals():
                service = self._asking()
                found = None
                if service is not None:
                    found = service.reads.found().open_partitions(service.client, service.reads.settings)
                self._counted = now, found
        return self._counted[1]

    def lags(self, partitions: Sequence[Partition]) -> Mapping[str, int]:
        """See `Probe.lags`."""
        with self._refusals():
            service = self._asking()
            if service is None:
                return {}
            kind = service.reads.found()
            lags = {each.partition_key: kind.unread_lag(service.client, each) for each in partitions}
        return {key: lag // MS for key, lag in lags.items() if lag is not None}

    def _asking(self) -> _Service | None:
        if self._reads is None:
            return None
        now = self.coordinator.clock.monotonic()
        if self._service is None or now - self._service.made_at >= REUSED.total_seconds():
            reads = self._reads.connect(self.region).reads
            client = reads.found().service(reads.settings)
            self._service = _Service(reads=reads, client=client, made_at=now)
        return self._service

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Raise what a source refuses as what it is to a supervisor: contact is lost, and may come back."""
        try:
            yield
        except ConfigurationError as error:
            self._service = None
            raise SourceError(str(error)) from error
        except Exception:
            self._service = None
            raise
