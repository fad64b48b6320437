"""How long a lease runs, and how far the clocks of two machines may differ."""

from __future__ import annotations

from datetime import timedelta

from airflow_provider_coordination.coordination.errors import ConfigurationError

DEFAULT_OWNERSHIP_TIMEOUT = timedelta(seconds=60)
DEFAULT_SAFETY_MARGIN = timedelta(seconds=2)


def check_lease_times(ownership_timeout: timedelta, safety_margin: timedelta) -> None:
    """Check that a lease of this length leaves room for the margin on both sides.

    :raises ConfigurationError: if it does not.
    """
    if safety_margin < timedelta(0) or ownership_timeout < 4 * safety_margin or ownership_timeout <= timedelta(0):
        raise ConfigurationError(
            f"ownership_timeout {ownership_timeout.total_seconds():g} s with safety_margin "
            f"{safety_margin.total_seconds():g} s is not usable: make the timeout positive and "
            "at least four times the margin"
        )
