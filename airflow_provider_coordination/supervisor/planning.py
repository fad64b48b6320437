"""Capacity planning: the resources, throughput and lag limits of a supervised source. Arithmetic without I/O.

A job works in rounds: each slot reads its partitions at the rate of the source, then the records are transformed, if
the spec says so, and delivered. The maximum throughput of a job follows from the duration of a round:

    max(reading at the source's rate, landing on the cores) + transforming on the cores + the overhead of a round

With a target of freshness, a round reads for a shorter time. Deliveries are then expected to take that overhead.

Everything else follows from the ratio of the incoming rate to this throughput.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.source_kind import Capacity
from airflow_provider_coordination.spark.round_pace import SHORTEST_SECONDS, paced_seconds
from airflow_provider_coordination.spark.sinks import SINKS
from airflow_provider_coordination.spark.slot_memory import ROW_GROUP_BYTES
from airflow_provider_coordination.supervisor.assumptions import Assumptions
from airflow_provider_coordination.supervisor.settings import SparkSettings, SuperviseSettings
from airflow_provider_coordination.supervisor.spec import IngestionSpec

MIB = 2**20
MB = 1_000_000
READS_WHEN_CAUGHT_UP = 2
"""Reads of a partition that is caught up: one that returns the new records, and one that returns none."""
SIZES = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50}


@dataclass(frozen=True, kw_only=True)
class Load:
    """The incoming data that an ingestion is planned for.

    :param partitions: the number of partitions with data.
    :param bytes_per_second: the incoming rate of all partitions together.
    :param record_bytes: the average size of a record.
    :param retention: how long the source keeps its data; None if forever.
    :param outage: the duration of an outage of all jobs, for which catching up is calculated.
    """

    partitions: int
    bytes_per_second: float
    record_bytes: float
    retention: timedelta | None
    outage: timedelta = timedelta(hours=1)

    def check(self) -> None:
        """Check every value.

        :raises ConfigurationError: naming the value and the remedy.
        """
        for name, value in (
            ("the number of partitions", self.partitions),
            ("the size of a record in bytes", self.record_bytes),
        ):
            if value <= 0:
                raise ConfigurationError(f"plan: {name} must be positive; got {value:g}")
        if not math.isfinite(self.bytes_per_second) or self.bytes_per_second < 0:
            raise ConfigurationError(
                f"plan: the incoming rate must not be negative; got {self.bytes_per_second:g} bytes/s"
            )
        if self.retention is not None and self.retention <= timedelta(0):
            raise ConfigurationError(f"plan: the retention must be positive; got {self.retention}")


@dataclass(frozen=True, kw_only=True)
class Resources:
    """The resources that an ingestion needs.

    :param jobs: the number of jobs that read at the same time.
    :param jobs_at_handover: the number of jobs while new ones start and old ones still deliver.
    :param partitions_per_job: the number of partitions of the job with the most.
    :param slots_per_job: the number of Spark tasks that read them.
    :param cores_per_job: the number of executor cores that a job needs.
    :param cores_in_spec: the number of executor cores that the spec gives a job; None if it gives none.
    :param cores: the cores of all jobs together.
    :param cores_at_handover: the cores of all jobs during a handover.
    :param python_mib_per_core: memory of Python outside an executor's JVM, per core.
    :param memory_mib_per_core: memory of an executor per core, with its share of the JVM's memory.
    :param memory_mib: memory of all jobs together, including drivers.
    :param memory_mib_at_handover: memory of all jobs during a handover.
    :param driver_mib: memory of a driver.
    :param worker_slots: slots of Airflow's pool during a turn of the supervisor; waiting and jobs take none.
    :param triggers: triggers of Airflow's triggerer.
    """

    jobs: int
    jobs_at_handover: int
    partitions_per_job: int
    slots_per_job: int
    cores_per_job: int
    cores_in_spec: int | None
    cores: int
    cores_at_handover: int
    python_mib_per_core: int
    memory_mib_per_core: int
    memory_mib: int
    memory_mib_at_handover: int
    driver_mib: int
    worker_slots: int = 1
    triggers: int = 1


@dataclass(frozen=True, kw_only=True)
class Throughput:
    """The throughput of an ingestion.

    :param round_seconds: the duration of a round in which every partition has more data than the round reads.
    :param max_bytes_per_second: the maximum rate at which all jobs together read and deliver.
    :param bottleneck: what takes most of such a round: `"source"`, `"landing"`, `"transforming"` or `"rounds"`.
    :param utilization: the incoming rate divided by the maximum rate; above 1 the jobs fall behind.
    :param catch_up_seconds: how long the jobs take to catch up after the outage; None if they never do.
    """

    round_seconds: float
    max_bytes_per_second: float
    bottleneck: str
    utilization: float
    catch_up_seconds: float | None


@dataclass(frozen=True, kw_only=True)
class LagLimits:
    """How far an ingestion may fall behind before data is lost.

    :param longest_outage_seconds: how long all jobs may be down before data expires unread; None if data never expires.
    :param expires_after_seconds: after what time data starts to expire unread because the jobs are too slow; None if
        the jobs keep up or data never expires.
    :param takeover_seconds: the time until another job reads the partitions of a job that Airflow saw fail.
    """

    longest_outage_seconds: float | None
    expires_after_seconds: float | None
    takeover_seconds: float


@dataclass(frozen=True, kw_only=True)
class Requests:
    """The requests per second of an ingestion that keeps up.

    :param source: calls to the source; None if unknown.
    :param source_while_catching_up: calls to the source while the jobs catch up; None if unknown.
    :param store_reads: calls that read the store.
    :param store_writes: items written to the store.
    """

    source: float | None
    source_while_catching_up: float | None
    store_reads: float
    store_writes: float


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The capacity plan of an ingestion.

    :param source: the name of the source.
    :param load: the incoming data.
    :param resources: the resources that it needs.
    :param throughput: its throughput.
    :param lag_limits: how far it may fall behind before data is lost.
    :param requests: its requests to the source and the store.
    :param warnings: problems of the plan, each with its remedy.
    :param assumptions: the assumptions of the calculation.
    """

    source: str
    load: Load
    resources: Resources
    throughput: Throughput
    lag_limits: LagLimits
    requests: Requests
    warnings: tuple[str, ...]
    assumptions: Assumptions

    def to_mapping(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        retention = self.load.retention
        return {
            "source": self.source,
            "load": {
                "partitions": self.load.partitions,
                "mb_per_second": self.load.bytes_per_second / MB,
                "record_bytes": self.load.record_bytes,
                "records_per_second": self.load.bytes_per_second / self.load.record_bytes,
                "retention_seconds": None if retention is None else retention.total_seconds(),
                "outage_seconds": self.load.outage.total_seconds(),
            },
            "resources": asdict(self.resources),
            "throughput": asdict(self.throughput),
            "lag_limits": asdict(self.lag_limits),
            "requests": asdict(self.requests),
            "warnings": list(self.warnings),
            "assumptions": [asdict(each) for each in self.assumptions.all()],
        }


def plan(spec: IngestionSpec, load: Load, capacity: Capacity, assumptions: Assumptions) -> Plan:
    """Return the capacity plan of an ingestion.

    :param spec: the spec of the ingestion.
    :param load: the incoming data.
    :param capacity: the limits of the source.
    :param assumptions: the assumptions of the calculation.
    :raises ConfigurationError: if the load is invalid.
    """
    load.check()
    planner = _Planner(spec, load, capacity, assumptions)
    resources, throughput = planner.resources(), planner.throughput()
    return Plan(
        source=spec.source,
        load=load,
        resources=resources,
        throughput=throughput,
        lag_limits=planner.lag_limits(throughput),
        requests=planner.requests(throughput),
        warnings=tuple(planner.warnings(resources, throughput)),
        assumptions=assumptions,
    )


class _Planner:
    def __init__(self, spec: IngestionSpec, load: Load, capacity: Capacity, assumptions: Assumptions) -> None:
        self._spec, self._load, self._capacity, self._assumptions = spec, load, capacity, assumptions
        self._rounds = spec.ingestion.rounds
        self._jobs = min(_max_jobs(spec.supervise), load.partitions)
        self._partitions_per_job = math.ceil(load.partitions / self._jobs)
        self._spec_cores = cores_in_spec(spec.tuning.spark)
        self._required_cores = self._calculate_cores()
        self._cores = self._spec_cores or self._required_cores

    # Resources

    def _calculate_cores(self) -> int:
        """Return the number of cores at which a job reaches the target utilization."""
        records = self._load.bytes_per_second / self._load.record_bytes * self._assumptions.skew / self._jobs
        return max(math.ceil(records * self._seconds_per_record / self._assumptions.target_utilization), 1)

    @property
    def _landing_seconds(self) -> float:
        return self._assumptions.landing_seconds(self._load.record_bytes)

    @property
    def _transforming_seconds(self) -> float:
        if self._spec.ingestion.schema is None and not self._spec.ingestion.is_transformed:
            return 0.0
        return self._assumptions.transforming_seconds(self._load.record_bytes)

    @property
    def _seconds_per_record(self) -> float:
        return self._landing_seconds + self._transforming_seconds

    @property
    def _slots(self) -> int:
        return min(self._cores, self._partitions_per_job)

    @property
    def _partitions_per_slot(self) -> int:
        """The number of partitions that a slot reads at the same time while one of several cores delivers."""
        used = max(self._cores - 1, 1)
        return math.ceil(self._partitions_per_job / min(used, self._partitions_per_job))

    @property
    def _read_buffer_mib(self) -> float:
        """The memory that a slot needs for the data it is reading."""
        held = min(self._batch_bytes, ROW_GROUP_BYTES) * self._assumptions.memory_factor / MIB
        return min(
            self._partitions_per_slot * (held + self._assumptions.page_mib), self._rounds.slot_memory_bytes / MIB
        )

    def resources(self) -> Resources:
        """Return the resources that the ingestion needs."""
        spark, stopping = self._spec.tuning.spark, self._spec.supervise.stop_task_count
        at_handover = self._jobs + min(stopping or self._jobs, self._jobs)
        python = self._assumptions.python_mib + self._read_buffer_mib
        per_executor = spark.executor_cores or 1
        executor = _mib(spark.executor_memory) or self._assumptions.executor_memory_mib
        per_core = python + executor / per_executor
        driver = _mib(spark.driver_memory) or self._assumptions.driver_memory_mib
        of_job = per_core * self._cores + driver
        return Resources(
            jobs=self._jobs,
            jobs_at_handover=at_handover,
            partitions_per_job=self._partitions_per_job,
            slots_per_job=self._slots,
            cores_per_job=self._required_cores,
            cores_in_spec=self._spec_cores,
            cores=self._cores * self._jobs,
            cores_at_handover=self._cores * at_handover,
            python_mib_per_core=math.ceil(python),
            memory_mib_per_core=math.ceil(per_core),
            memory_mib=math.ceil(of_job * self._jobs),
            memory_mib_at_handover=math.ceil(of_job * at_handover),
            driver_mib=math.ceil(driver),
        )

    # Throughput

    @property
    def _partition_read_rate(self) -> float:
        """The maximum rate at which a job can read a partition."""
        rate = self._capacity.read_bytes_per_second
        if rate is None:
            return math.inf
        return rate / (1 + self._assumptions.other_readers) if self._capacity.is_shared else rate

    @property
    def _shortest_round(self) -> float:
        """How short rounds with a target of freshness can be, in seconds."""
        interval = max(SINKS.load(each.kind).commit_interval for each in self._spec.sinks)
        return max(SHORTEST_SECONDS, interval.total_seconds(), self._assumptions.round_overhead_s)

    @cached_property
    def _paced_seconds(self) -> float | None:
        """The duration of the rounds that a target of freshness allows; None without a target."""
        if self._rounds.freshness is None:
            return None
        return paced_seconds(
            self._rounds.freshness.total_seconds(),
            longest=self._rounds.round_duration.total_seconds(),
            shortest=self._shortest_round,
            delivering=self._assumptions.round_overhead_s,
        )

    @property
    def _batch_bytes(self) -> float:
        """The maximum number of bytes read from a partition in a round."""
        seconds = min(self._rounds.round_duration.total_seconds(), self._paced_seconds or math.inf)
        return min(self._partition_read_rate * seconds, self._rounds.max_batch_bytes)

    def throughput(self) -> Throughput:
        """Return the throughput of all jobs together."""
        of_round = self._batch_bytes * self._partitions_per_job
        records = of_round / self._load.record_bytes
        reading = self._batch_bytes / self._partition_read_rate
        landing = records * self._landing_seconds / self._cores
        transforming = records * self._transforming_seconds / self._cores
        seconds = max(reading, landing) + transforming + self._assumptions.round_overhead_s
        parts = {
            "rounds": self._assumptions.round_overhead_s,
            "source": reading if reading >= landing else 0.0,
            "landing": landing if landing > reading else 0.0,
            "transforming": transforming,
        }
        # The partition with the most data is read no faster than the others.
        max_rate = self._load.partitions * self._batch_bytes / seconds / self._assumptions.skew
        arriving = self._load.bytes_per_second
        ahead = max_rate - arriving
        return Throughput(
            round_seconds=seconds,
            max_bytes_per_second=max_rate,
            bottleneck=max(parts, key=lambda name: parts[name]),
            utilization=arriving / max_rate,
            catch_up_seconds=self._load.outage.total_seconds() * arriving / ahead if ahead > 0 else None,
        )

    def lag_limits(self, throughput: Throughput) -> LagLimits:
        """Return how far the ingestion may fall behind before data is lost."""
        kept = None if self._load.retention is None else self._load.retention.total_seconds()
        is_too_slow = throughput.utilization > 1
        return LagLimits(
            longest_outage_seconds=None if kept is None else max(kept - self._assumptions.job_start_s, 0.0),
            expires_after_seconds=kept / (1 - 1 / throughput.utilization) if kept is not None and is_too_slow else None,
            takeover_seconds=self._assumptions.takeover_s + self._assumptions.job_start_s,
        )

    # Requests

    def requests(self, throughput: Throughput) -> Requests:
        """Return the requests per second while every round reads all incoming data.

        A target of freshness lets each round wait for what arrives, so that there are no more rounds than it needs.
        """
        pace = self._capacity.reads_per_second
        idle_round = self._assumptions.round_overhead_s + (READS_WHEN_CAUGHT_UP / pace if pace else 0.0)
        working = throughput.utilization * (1 - self._assumptions.round_overhead_s / throughput.round_seconds)
        seconds = min(idle_round / (1 - working), throughput.round_seconds) if working < 1 else throughput.round_seconds
        rounds = 1 / max(seconds, self._paced_seconds or 0.0)
        batches = self._load.partitions * rounds
        # Iterators are kept between rounds; a subscription is one call.
        source = None if pace is None else batches * (READS_WHEN_CAUGHT_UP if pace else 1)
        return Requests(
            source=source,
            source_while_catching_up=None if pace is None else self._load.partitions * (pace or rounds),
            store_reads=self._jobs * rounds * self._assumptions.store_reads_per_round,
            store_writes=batches * self._assumptions.store_writes_per_batch,
        )

    # Warnings

    def warnings(self, resources: Resources, throughput: Throughput) -> list[str]:
        """Return the problems of the plan, each with its remedy."""
        messages = []
        wanted, load, capacity = _max_jobs(self._spec.supervise), self._load, self._capacity
        if wanted > self._jobs:
            messages.append(
                f"task_count is {wanted}, but the source has {self._jobs} partitions: only {self._jobs} jobs start"
            )
        if capacity.written_bytes_per_second is not None:
            max_rate = capacity.written_bytes_per_second * load.partitions / self._assumptions.skew
            if load.bytes_per_second > max_rate:
                messages.append(
                    f"{load.bytes_per_second / MB:g} MB/s exceeds the {max_rate / MB:.1f} MB/s that {load.partitions} "
                    "partitions accept: check the load, or give the source more partitions"
                )
        if resources.cores_in_spec is not None and resources.cores_in_spec < resources.cores_per_job:
            messages.append(
                f"the spec gives a job {resources.cores_in_spec} cores, but it needs {resources.cores_per_job}: raise "
                "the cores in tuning.spark, or task_count"
            )
        remedy = self._remedy(throughput)
        if throughput.utilization > 1:
            messages.append(f"jobs fall behind: {remedy}")
        elif throughput.utilization > self._assumptions.target_utilization:
            messages.append(f"jobs run at {throughput.utilization:.0%} utilization, so they catch up slowly: {remedy}")
        freshness, overhead = self._rounds.freshness, self._assumptions.round_overhead_s
        if freshness is not None and freshness.total_seconds() < self._shortest_round + overhead:
            messages.append(
                f"the sinks cannot be as fresh as {freshness.total_seconds():g} s: a round takes at least "
                f"{self._shortest_round:g} s, and the delivery of its records {overhead:g} s: raise rounds.freshness, "
                "or replace round_overhead_s by what you measured"
            )
        kept = load.retention
        if kept is not None and load.outage >= kept:
            messages.append(
                f"an outage of {load.outage} is not shorter than the source's retention of {kept}: data expires"
            )
        return messages

    def _remedy(self, throughput: Throughput) -> str:
        match throughput.bottleneck:
            case "source":
                return "the source is the limit: reduce its other readers, read it as a separate consumer, or split it"
            case "rounds":
                longer = "round_duration" if self._rounds.freshness is None else "freshness"
                return f"rounds are too short: raise rounds.{longer} and max_batch_bytes"
            case _:
                return f"{throughput.bottleneck} is the bottleneck: give jobs more cores, or raise task_count"


def _max_jobs(supervise: SuperviseSettings) -> int:
    scaling = supervise.auto_scale
    return supervise.task_count if scaling is None else scaling.task_count_max


def cores_in_spec(spark: SparkSettings) -> int | None:
    """Return the number of executor cores that a spec gives to a job; None if it gives none."""
    conf = spark.conf
    total = spark.total_executor_cores or _whole(conf.get("spark.cores.max"))
    if total is not None:
        return total
    executors = spark.num_executors or _whole(conf.get("spark.executor.instances"))
    cores = spark.executor_cores or _whole(conf.get("spark.executor.cores"))
    if executors is None and cores is None:
        return None
    return (executors or 1) * (cores or 1)


def _whole(value: Any) -> int | None:
    text = str(value)
    return int(text) if text.isdigit() and int(text) > 0 else None


def _mib(size: str | None) -> float | None:
    found = re.fullmatch(r"(?i)(\d+)([kmgtp])b?", size or "")
    return None if found is None else int(found[1]) * SIZES[found[2].lower()] / MIB
