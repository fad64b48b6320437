"""Renewal of leases on a thread of its own, so that slow reading or a slow sink never costs a lease."""

from __future__ import annotations

import logging
import threading
from types import TracebackType

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import CoordinationError

log = logging.getLogger(__name__)


class LeaseRenewer:
    """Renews a coordinator's leases while the `with` block runs.

    A lease is renewed once a third of it has passed, so two attempts may fail before it is lost. An error is logged and
    the next attempt made; leases that cannot be renewed run out by the coordinator's own clock.

    :param coordinator: whose leases.
    """

    def __init__(self, coordinator: SourceCoordinator) -> None:
        self._coordinator = coordinator
        self._interval_seconds = coordinator.ownership_timeout.total_seconds() / 12
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease-renewal", daemon=True)

    def __enter__(self) -> LeaseRenewer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._interval_seconds):
            try:
                self._coordinator.renew_due()
            except CoordinationError as error:
                log.warning("leases could not be renewed, trying again: %s", error)
            except Exception:
                log.exception("leases could not be renewed, trying again")
