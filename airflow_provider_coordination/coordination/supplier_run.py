"""Running a source's suppliers: by one worker of the fleet at a time, page by page, until they have found all."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta

from airflow_provider_coordination.coordination.claims import Claims
from airflow_provider_coordination.coordination.errors import (
    ConfigurationError,
    NamesClaimedError,
    SupplierBusyError,
)
from airflow_provider_coordination.coordination.leases import LOST, Leases
from airflow_provider_coordination.coordination.metrics import CoordinationMetric
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.coordination.partition_events import PartitionEvents
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.supplier import FAMILY, GlobalState, Page, Supplier, Turn

log = logging.getLogger(__name__)

MAX_LOOKS = 10
"""How often a supplier is run, where another source that shares its claims was faster, or its lease was lost."""


class SupplierRuns:
    """Runs the suppliers of one source for one worker. Safe to use from several threads.

    :param view: of the source.
    :param claims: of the source.
    :param leases_in: makes this worker's leases in an item family.
    :param events: where to note what happened.
    :param owner: the worker.
    """

    def __init__(
        self,
        view: SourceView,
        claims: Claims,
        leases_in: Callable[[str], Leases],
        events: PartitionEvents,
        *,
        owner: str,
    ) -> None:
        self._view = view
        self._claims = claims
        self._leases_in = leases_in
        self._events = events
        self._owner = owner
        self._family = view.family(FAMILY)
        self._last_run_at = view.clock.monotonic()
        self._running = threading.Lock()

    @property
    def idle_seconds(self) -> float:
        """How long ago this worker last asked for a supplier to run, or was started."""
        return self._view.clock.monotonic() - self._last_run_at

    def run(
        self, supplier: Supplier, *, patience: timedelta | None, sleep: Callable[[float], None]
    ) -> list[str] | None:
        """See `SourceCoordinator.supply`."""
        view = self._view
        view.require_initialized()
        if view.suspension() is not None:
            return None
        if not self._running.acquire(timeout=0 if patience is None else patience.total_seconds()):
            if patience is not None:
                raise SupplierBusyError(f"source {view.source!r}: another thread of {self._owner} runs the supplier")
            log.info("supplier left to another thread: source=%s owner=%s", view.source, self._owner)
            return None
        try:
            return self._run(supplier, None if patience is None else self._turn(patience, sleep))
        finally:
            self._running.release()

    def _run(self, supplier: Supplier, turn: Turn | None) -> list[str] | None:
        created: list[str] = []
        runs_lost = 0
        while self._view.suspension() is None:
            try:
                holder = self._run_once(supplier, created)
            except LOST as error:
                log.warning("supplier ends early: source=%s owner=%s: %s", self._view.source, self._owner, error)
                if turn is None:
                    return created
                runs_lost += 1
                if runs_lost == MAX_LOOKS:
                    raise
                continue
            if holder is None:
                return created
            if turn is None:
                log.info(
                    "supplier left to another worker: source=%s owner=%s holder=%s",
                    self._view.source, self._owner, holder.owner,
                )  # fmt: skip
                return None
            turn.wait(holder)
        return created or None

    def _run_once(self, supplier: Supplier, created: list[str]) -> Partition | None:
        """Run a supplier, adding the keys that were created; return the global state as another worker holds it."""
        self._last_run_at = self._view.clock.monotonic()
        leases = self._leases_in(self._family)
        state = GlobalState(self._view.store, leases, self._family, self._owner, self._view.clock)
        try:
            if (held := state.acquire()) is not None:
                return held
            log.info("supplier starts: source=%s owner=%s", self._view.source, self._owner)
            try:
                self._create_pages(supplier, state, created)
            except BaseException:
                self._events.count(CoordinationMetric.SUPPLIER_FAILURES)
                raise
        finally:
            state.release()
        self._events.count(CoordinationMetric.PARTITION_CREATION_SUPPLIER_INVOCATIONS)
        log.info("supplier ends: source=%s partitions created=%d", self._view.source, len(created))
        return None

    def _turn(self, patience: timedelta, sleep: Callable[[float], None]) -> Turn:
        return Turn(
            self._owner,
            self._view.source,
            patience=patience,
            safety_margin=self._view.safety_margin,
            clock=self._view.clock,
            sleep=sleep,
        )

    def _create_pages(self, supplier: Supplier, state: GlobalState, created: list[str]) -> None:
        """Create what a supplier finds, adding the keys to `created`; run it again where names were taken by others."""
        for look in range(MAX_LOOKS):
            try:
                with closing(state.pages(supplier)) as pages:
                    for page in pages:
                        if self._view.suspension() is not None:
                            log.warning("supplier ends early: source=%s owner=%s", self._view.source, self._owner)
                            return
                        created.extend(self._create(page, state))  # what comes before an error remains, and counts
                return
            except NamesClaimedError as error:
                if look == MAX_LOOKS - 1:
                    raise ConfigurationError(f"{error}; it was run {MAX_LOOKS} times") from error
                log.info("supplier looks again: source=%s: %s", self._view.source, error)

    def _create(self, page: Page, state: GlobalState) -> Iterator[str]:
        """Create a page's partitions, those with claims together with these; yield what was created."""
        if strangers := page.claims.keys() - page.partitions.keys():
            raise ConfigurationError(f"page: names are claimed for {min(strangers)!r}, which is none of its partitions")
        plain = [self._view.new(key, progress) for key, progress in page.partitions.items() if not page.claims.get(key)]
        for created in state.create_absent(plain):
            self._events.created([created.partition_key])
            yield created.partition_key
        claimed = (
            (self._view.new(key, page.partitions[key]), self._claims.of(key, names))
            for key, names in page.claims.items()
            if names
        )
        for created in state.create_all(claimed):
            self._events.created([created.partition_key])
            yield created.partition_key
