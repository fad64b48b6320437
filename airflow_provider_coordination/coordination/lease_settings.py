"""How many leases of a source a worker may hold, and how it gets them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from airflow_provider_coordination.coordination.balance import BALANCE_BY, BY_COUNT
from airflow_provider_coordination.coordination.errors import ConfigurationError


@dataclass(kw_only=True)
class LeaseSettings:
    """How many leases of a source a worker may hold, and how it gets them.

    :param max_leases: the maximum number of partitions the worker holds, even if its fair share is larger; None for no
        limit. (templated)
    :param balance_by: what workers share evenly: the `"count"` of leases, or the `"throughput"` recorded in each
        partition's progress. (templated)
    :param max_leases_to_steal: how many leases the worker requests from others at a time; None for an eighth of an even
        share. (templated)
    :param handover_timeout: how long an owner may take to hand over a lease that another worker requested; timedelta or
        seconds. (templated)
    """

    template_fields: ClassVar[Sequence[str]] = ("max_leases", "balance_by", "max_leases_to_steal", "handover_timeout")

    max_leases: int | None = None
    balance_by: str = BY_COUNT
    max_leases_to_steal: int | None = None
    handover_timeout: timedelta = timedelta(seconds=30)

    def check(self) -> None:
        """Check every value.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        if self.max_leases is not None and self.max_leases < 1:
            raise ConfigurationError(
                f"LeaseSettings: field 'max_leases' must be at least 1, or omitted; got {self.max_leases!r}"
            )
        if self.max_leases_to_steal is not None and self.max_leases_to_steal < 1:
            raise ConfigurationError(
                f"LeaseSettings: field 'max_leases_to_steal' must be at least 1, or omitted; got "
                f"{self.max_leases_to_steal!r}"
            )
        if self.handover_timeout <= timedelta(0):
            raise ConfigurationError(
                "LeaseSettings: field 'handover_timeout' must be positive; got "
                f"{self.handover_timeout.total_seconds():g} seconds"
            )
        if self.balance_by not in BALANCE_BY:
            raise ConfigurationError(
                f"LeaseSettings: field 'balance_by' must be {' or '.join(map(repr, BALANCE_BY))}; got "
                f"{self.balance_by!r}"
            )


DEFAULT_OWNERSHIP_TIMEOUT = timedelta(seconds=60)
DEFAULT_SAFETY_MARGIN = timedelta(seconds=2)


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
