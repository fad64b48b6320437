"""How long leases last."""

from __future__ import annotations

from datetime import timedelta

from airflow_provider_coordination.coordination.errors import ConfigurationError

DEFAULT_OWNERSHIP_TIMEOUT = timedelta(seconds=60)
DEFAULT_SAFETY_MARGIN = timedelta(seconds=2)
DEFAULT_HANDOVER_TIMEOUT = timedelta(seconds=30)


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
