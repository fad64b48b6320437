"""The kind of store in the memory of one process, for tests."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.stores.kind import StoreKind


@dataclass(frozen=True)
class InMemorySettings:
    """No settings."""


class InMemoryKind(StoreKind[InMemorySettings]):
    """See `InMemoryStore`."""

    settings = InMemorySettings
    is_shared = False

    @override
    def open(self, settings: InMemorySettings, *, retry_deadline_seconds: float) -> CoordinationStore:
        from airflow_provider_coordination.stores.in_memory import InMemoryStore

        return InMemoryStore()


KIND = InMemoryKind()
