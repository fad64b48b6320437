"""What a plan assumes: figures that were measured, defaults of Spark, and what only the person who plans can know.

Every one has a unit and says where it comes from: the benchmark whose results are in `benchmarks/RESULTS.md`, or that
nobody measured it. Whoever plans for other machines, or other data, gives another value.
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


def _figure(value: float, unit: str, what: str, source: str) -> Any:
    return field(default=value, metadata={"unit": unit, "what": what, "source": source})


@dataclass(frozen=True, kw_only=True)
class Assumption:
    """One of the assumptions of a plan.

    :param name: what it is called.
    :param value: its value.
    :param unit: of the value.
    :param what: what it is.
    :param source: where the value comes from.
    """

    name: str
    value: float
    unit: str
    what: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Assumptions:
    """The assumptions of a plan, by name."""

    parsing_us_per_record: float = _figure(
        2.2, "µs of a core", "taking a record out of an answer of the source", DEAGGREGATION
    )
    parsing_us_per_kib: float = _figure(2.4, "µs of a core", "the same, for each KiB of it", DEAGGREGATION)
    landing_us_per_record: float = _figure(
        0.7, "µs of a core", "writing a record of an aggregate to its landed file", LANDING_COST
    )
    landing_us_per_kib: float = _figure(6.4, "µs of a core", "the same, for each KiB of it", LANDING_COST)
    transforming_us_per_record: float = _figure(
        19.0, "µs of a core", "parsing a landed record by a schema in Spark and writing it", LANDING_COST
    )
    transforming_us_per_kib: float = _figure(15.3, "µs of a core", "the same, for each KiB of it", LANDING_COST)
    memory_factor: float = _figure(
        2.1, "bytes a byte", "memory that a slot holds for each byte that it reads", LANDING_COST
    )
    page_mib: float = _figure(24.0, "MiB", "an answer of the source while it is parsed", ASSUMED)
    python_mib: float = _figure(160.0, "MiB", "memory of a Python worker that reads nothing", LANDING_COST)
    store_reads_per_round: float = _figure(5.5, "calls", "what a job reads of the store in a round", LANDING_COST)
    store_writes_per_batch: float = _figure(5.0, "items", "what it writes to it for each batch", LANDING_COST)
    noticed_death_s: float = _figure(
        1.7, "s", "until partitions are read on whose job Airflow saw die, a new job's start aside", FAILOVER
    )
    round_overhead_s: float = _figure(1.0, "s", "of a round, what is neither reading nor transforming", ASSUMED)
    job_start_s: float = _figure(45.0, "s", "from submitting a job to its first round", ASSUMED)
    busy_fraction: float = _figure(0.7, "of 1", "how busy jobs are planned to be, at the most", ASSUMED)
    skew: float = _figure(1.0, "times", "what the busiest partition takes, to the average", ASSUMED)
    other_readers: float = _figure(0.0, "readers", "others that read every partition and share its limit", ASSUMED)
    executor_memory_mib: float = _figure(1024.0, "MiB", "memory of an executor's JVM, where the spec names none", SPARK)
    driver_memory_mib: float = _figure(1024.0, "MiB", "memory of a driver's JVM, where the spec names none", SPARK)

    def given(self, values: Mapping[str, float]) -> Assumptions:
        """Return them with other values.

        :param values: by name.
        :raises ConfigurationError: if there is no such assumption, or it has no such value.
        """
        known = {each.name for each in fields(self)}
        for name, value in values.items():
            if name not in known:
                raise ConfigurationError(
                    f"there is no assumption {name!r}; those that there are: {', '.join(sorted(known))}"
                )
            if not math.isfinite(value) or value < 0 or (name in ("busy_fraction", "skew") and value == 0):
                raise ConfigurationError(f"assumption {name!r} must be a positive number; got {value:g}")
        if values.get("busy_fraction", 0) > 1:
            raise ConfigurationError(f"assumption 'busy_fraction' must be at most 1; got {values['busy_fraction']:g}")
        return replace(self, **values)

    def all(self) -> Iterator[Assumption]:
        """Yield them, in the order of the plan."""
        plain = Assumptions()
        for each in fields(self):
            value = getattr(self, each.name)
            is_plain = value == getattr(plain, each.name)
            yield Assumption(
                name=each.name,
                value=value,
                unit=each.metadata["unit"],
                what=each.metadata["what"],
                source=each.metadata["source"] if is_plain else "given",
            )

    def landing_seconds(self, record_bytes: float) -> float:
        """Return the time of a core that reading and landing a record takes."""
        kib = record_bytes / 1024
        parsing = self.parsing_us_per_record + self.parsing_us_per_kib * kib
        return (parsing + self.landing_us_per_record + self.landing_us_per_kib * kib) / 1e6

    def transforming_seconds(self, record_bytes: float) -> float:
        """Return the time of a core that transforming a record takes."""
        return (self.transforming_us_per_record + self.transforming_us_per_kib * record_bytes / 1024) / 1e6
