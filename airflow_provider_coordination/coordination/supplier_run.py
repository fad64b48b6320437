"""Runs a source's suppliers: one worker of the fleet at a time, page by page, until they have found everything."""

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
from airflow_provider_coordination.coordination.metrics import CoordinationMetric, PartitionEvents
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.supplier import FAMILY, GlobalState, Page, Supplier, SupplierWait

log = logging.getLogger(__name__)

MAX_RUNS = 10
"""How often a supplier is run if another source with the same claims was faster, or if its lease was lost."""


class SupplierRuns:
    """Runs the suppliers of one source for one worker. Safe to use from several threads.

    :param view: the view of the source.
    :param claims: the claims of the source.
    :param leases_in: returns this worker's leases in an item family.
    :param events: where events are logged and counted.
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
        """The seconds since this worker last ran a supplier, or was started."""
        return self._view.clock.monotonic() - self._last_run_at

    def run(
        self, supplier: Supplier, *, wait_timeout: timedelta | None, sleep: Callable[[float], None]
    ) -> list[str] | None:
        """Run a supplier unless another worker runs it; `SourceCoordinator.supply` has the parameters and errors.

        :returns: the keys that were created; None if no supplier was run.
        """
        view = self._view
        view.require_initialized()
        if view.suspension() is not None:
            return None
        if not self._running.acquire(timeout=0 if wait_timeout is None else wait_timeout.total_seconds()):
            if wait_timeout is not None:
                raise SupplierBusyError(f"source {view.source!r}: another thread of {self._owner} runs the supplier")
            log.info("supplier left to another thread: source=%s owner=%s", view.source, self._owner)
            return None
        try:
            return self._run(supplier, None if wait_timeout is None else self._new_wait(wait_timeout, sleep))
        finally:
            self._running.release()

    def _run(self, supplier: Supplier, wait: SupplierWait | None) -> list[str] | None:
        created: list[str] = []
        runs_lost = 0
        while self._view.suspension() is None:
            try:
                holder = self._run_once(supplier, created)
            except LOST as error:
                log.warning("supplier ends early: source=%s owner=%s: %s", self._view.source, self._owner, error)
                if wait is None:
                    return created
                runs_lost += 1
                if runs_lost == MAX_RUNS:
                    raise
                continue
            if holder is None:
                return created
            if wait is None:
                log.info(
                    "supplier left to another worker: source=%s owner=%s holder=%s",
                    self._view.source, self._owner, holder.owner,
                )  # fmt: skip
                return None
            wait.wait(holder)
        return created or None

    def _run_once(self, supplier: Supplier, created: list[str]) -> Partition | None:
        """Run a supplier and add the created keys to `created`.

        :returns: the global state if another worker holds it; None if the supplier ran.
        """
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

    def _new_wait(self, wait_timeout: timedelta, sleep: Callable[[float], None]) -> SupplierWait:
        return SupplierWait(
            self._owner,
            self._view.source,
            wait_timeout=wait_timeout,
            safety_margin=self._view.safety_margin,
            clock=self._view.clock,
            sleep=sleep,
        )

    def _create_pages(self, supplier: Supplier, state: GlobalState, created: list[str]) -> None:
        """Create a supplier's partitions, adding the keys to `created`; run it again if others claimed its names."""
        for run in range(MAX_RUNS):
            try:
                with closing(state.pages(supplier)) as pages:
                    for page in pages:
                        if self._view.suspension() is not None:
                            log.warning("supplier ends early: source=%s owner=%s", self._view.source, self._owner)
                            return
                        created.extend(self._create(page, state))  # partitions created before an error remain
                return
            except NamesClaimedError as error:
                if run == MAX_RUNS - 1:
                    raise ConfigurationError(f"{error}; the supplier was run {MAX_RUNS} times") from error
                log.info("supplier runs again: source=%s: %s", self._view.source, error)

    def _create(self, page: Page, state: GlobalState) -> Iterator[str]:
        """Create the partitions of a page, with their claims; yield the created keys."""
        if unknown := page.claims.keys() - page.partitions.keys():
            raise ConfigurationError(
                f"the page claims names for {min(unknown)!r}, which is not in its 'partitions'; add it there, or "
                "remove it from 'claims'"
            )
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
