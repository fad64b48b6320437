"""The assumptions of a capacity plan: measured values, Spark's defaults, and values that only the user can know.

Each assumption has a unit and an origin: a benchmark, whose results are in `benchmarks/RESULTS.md`, or that it was not
measured. Users replace those that differ for their machines or data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError

DEAGGREGATION = "measured by benchmarks.deaggregation"
LANDING_COST = "measured by benchmarks.landing_cost"
FAILOVER = "measured by benchmarks.failover"
SPARK = "Spark's default"
ASSUMED = "assumed, not measured"
NEVER_ZERO = ("target_utilization", "skew", "round_overhead_s")
"""Without an overhead, a source that is not polled would be read in endlessly many rounds."""


def _assumption(value: float, unit: str, what: str, source: str) -> Any:
    return field(default=value, metadata={"unit": unit, "what": what, "source": source})


@dataclass(frozen=True, kw_only=True)
class Assumption:
    """One assumption of a plan.

    :param name: its name.
    :param value: its value.
    :param unit: the unit of the value.
    :param what: its meaning.
    :param source: the origin of the value.
    """

    name: str
    value: float
    unit: str
    what: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Assumptions:
    """The assumptions of a plan, by name."""

    parsing_us_per_record: float = _assumption(
        2.2, "µs of a core", "extracting a record from a response of the source", DEAGGREGATION
    )
    parsing_us_per_kib: float = _assumption(2.4, "µs of a core", "the same, per KiB of the record", DEAGGREGATION)
    landing_us_per_record: float = _assumption(
        0.7, "µs of a core", "writing a record of an aggregate to a landed file", LANDING_COST
    )
    landing_us_per_kib: float = _assumption(6.4, "µs of a core", "the same, per KiB of the record", LANDING_COST)
    transforming_us_per_record: float = _assumption(
        19.0, "µs of a core", "parsing a landed record by a schema in Spark and writing it", LANDING_COST
    )
    transforming_us_per_kib: float = _assumption(15.3, "µs of a core", "the same, per KiB of the record", LANDING_COST)
    memory_factor: float = _assumption(2.1, "bytes per byte", "memory of a slot per byte that it reads", LANDING_COST)
    page_mib: float = _assumption(24.0, "MiB", "a response of the source while it is parsed", ASSUMED)
    python_mib: float = _assumption(160.0, "MiB", "memory of an idle Python worker", LANDING_COST)
    store_reads_per_round: float = _assumption(5.5, "calls", "reads of the store by a job in a round", LANDING_COST)
    store_writes_per_batch: float = _assumption(5.0, "items", "items written to the store per batch", LANDING_COST)
    takeover_s: float = _assumption(
        1.7, "s", "takeover of the partitions of a job that Airflow saw fail, without the start of a job", FAILOVER
    )
    round_overhead_s: float = _assumption(1.0, "s", "part of a round that neither reads nor transforms", ASSUMED)
    job_start_s: float = _assumption(45.0, "s", "from the submission of a job to its first round", ASSUMED)
    target_utilization: float = _assumption(0.7, "of 1", "maximum utilization of jobs to plan for", ASSUMED)
    skew: float = _assumption(1.0, "times", "rate of the busiest partition divided by the average", ASSUMED)
    other_readers: float = _assumption(
        0.0, "readers", "other consumers that poll every partition and share its limit", ASSUMED
    )
    executor_memory_mib: float = _assumption(
        1024.0, "MiB", "memory of an executor's JVM, unless the spec gives it", SPARK
    )
    driver_memory_mib: float = _assumption(1024.0, "MiB", "memory of a driver's JVM, unless the spec gives it", SPARK)

    def with_values(self, values: Mapping[str, float]) -> Assumptions:
        """Return the assumptions with some values replaced.

        :param values: the new values, by name.
        :raises ConfigurationError: if a name is unknown or a value is out of range.
        """
        known = {each.name for each in fields(self)}
        for name, value in values.items():
            if name not in known:
                raise ConfigurationError(
                    f"assumption {name!r} is unknown; the assumptions are {', '.join(sorted(known))}"
                )
            if not math.isfinite(value) or value < 0 or (name in NEVER_ZERO and value == 0):
                raise ConfigurationError(f"assumption {name!r} must be a positive number; got {value:g}")
        if values.get("target_utilization", 0) > 1:
            raise ConfigurationError(
                f"assumption 'target_utilization' must be at most 1; got {values['target_utilization']:g}"
            )
        return replace(self, **values)

    def all(self) -> Iterator[Assumption]:
        """Yield the assumptions in the order in which a plan shows them."""
        defaults = Assumptions()
        for each in fields(self):
            value = getattr(self, each.name)
            is_default = value == getattr(defaults, each.name)
            yield Assumption(
                name=each.name,
                value=value,
                unit=each.metadata["unit"],
                what=each.metadata["what"],
                source=each.metadata["source"] if is_default else "set by user",
            )

    def landing_seconds(self, record_bytes: float) -> float:
        """Return the core seconds that reading and landing a record take."""
        kib = record_bytes / 1024
        parsing = self.parsing_us_per_record + self.parsing_us_per_kib * kib
        return (parsing + self.landing_us_per_record + self.landing_us_per_kib * kib) / 1e6

    def transforming_seconds(self, record_bytes: float) -> float:
        """Return the core seconds that transforming a record takes."""
        return (self.transforming_us_per_record + self.transforming_us_per_kib * record_bytes / 1024) / 1e6
