"""How long leases last, and a thread that renews them, so that slow reading or a slow sink never costs a lease."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta
from types import TracebackType
from typing import Protocol

from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError

DEFAULT_OWNERSHIP_TIMEOUT = timedelta(seconds=60)
DEFAULT_SAFETY_MARGIN = timedelta(seconds=2)
DEFAULT_HANDOVER_TIMEOUT = timedelta(seconds=30)

log = logging.getLogger(__name__)


class Renewable(Protocol):
    """An object that holds leases."""

    @property
    def ownership_timeout(self) -> timedelta:
        """How long a lease lasts without renewal."""
        ...

    def renew_due(self) -> object:
        """Renew every lease of which more than a third has passed."""
        ...


class LeaseRenewer:
    """Renews leases while the `with` block runs.

    A lease is renewed once a third of it has passed, so two attempts may fail before it is lost. An error is logged and
    the next attempt follows. Leases that cannot be renewed expire by the coordinator's own clock.

    :param leases: the objects to renew, in this order: a coordinator, separate leases, a balancer. A failure of one
        does not affect the others.
    :param interval: how often to check for due leases, at most a twelfth of the shortest ownership timeout; None for a
        twenty-fourth, so that a lease is renewed at most a twelfth after it is due, however many leases there are.
    """

    def __init__(self, *leases: Renewable, interval: timedelta | None = None) -> None:
        self._leases = leases
        twelfth = min(each.ownership_timeout for each in leases) / 12
        self._interval_seconds = min(twelfth, interval or twelfth / 2).total_seconds()
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
            for leases in self._leases:
                try:
                    leases.renew_due()
                except CoordinationError as error:
                    log.warning("leases could not be renewed, trying again: %s", error)
                except Exception:
                    log.exception("leases could not be renewed, trying again")


def check_lease_times(ownership_timeout: timedelta, safety_margin: timedelta) -> None:
    """Check that the ownership timeout is long enough for the safety margin on both sides.

    :raises ConfigurationError: if it is not.
    """
    if safety_margin < timedelta(0) or ownership_timeout < 4 * safety_margin or ownership_timeout <= timedelta(0):
        raise ConfigurationError(
            f"ownership_timeout {ownership_timeout.total_seconds():g} s with safety_margin "
            f"{safety_margin.total_seconds():g} s is not usable: make the timeout positive and "
            "at least four times the margin"
        )
