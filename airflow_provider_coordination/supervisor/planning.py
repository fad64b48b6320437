"""What a supervised source needs, how fast it reads, and how far it may fall behind. Arithmetic, no I/O.

A job makes rounds: each slot reads its partitions for a while, as fast as the source lets it, then what was read is
transformed, if the spec says so, and delivered. So how much a job reads at most follows from the time of a round:

    max(reading at the source's pace, landing on the cores) + transforming on the cores + what every round costs

and everything else from how that compares to what arrives.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.capacity import Capacity
from airflow_provider_coordination.spark.slot_memory import ROW_GROUP_BYTES
from airflow_provider_coordination.supervisor.assumptions import Assumptions
from airflow_provider_coordination.supervisor.settings import SuperviseSettings
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.tuning import SparkSettings

MIB = 2**20
MB = 1_000_000
DRAINING_READS = 2
"""Reads of a partition that is not behind: one that gives what is there, and one that gives nothing."""
SIZES = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50}


@dataclass(frozen=True, kw_only=True)
class Load:
    """What arrives, and what it is planned for.

    :param partitions: how many partitions take data.
    :param bytes_per_second: of all of them together.
    :param record_bytes: of a record, in the mean.
    :param retention: how long the source keeps its data; None if for ever.
    :param outage: after what time without any job catching up is reckoned.
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
        for what, value in (
            ("the number of partitions", self.partitions),
            ("the bytes of a record", self.record_bytes),
        ):
            if value <= 0:
                raise ConfigurationError(f"plan: {what} must be positive; got {value:g}")
        if not math.isfinite(self.bytes_per_second) or self.bytes_per_second < 0:
            raise ConfigurationError(f"plan: what arrives must not be negative; got {self.bytes_per_second:g} bytes/s")
        if self.retention is not None and self.retention <= timedelta(0):
            raise ConfigurationError(f"plan: the retention must be positive; got {self.retention}")


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What it needs.

    :param jobs: how many jobs read at the same time.
    :param jobs_at_handover: how many there are while new ones begin and old ones deliver.
    :param partitions_per_job: how many partitions the busiest job reads.
    :param slots_per_job: how many Spark tasks read them.
    :param cores_per_job: how many cores of executors a job needs.
    :param cores_given: how many the spec gives it; None if it does not say.
    :param cores: of all jobs together.
    :param cores_at_handover: the same while jobs hand over.
    :param python_mib_per_core: memory of Python beside an executor's JVM, for each core.
    :param memory_mib_per_core: of an executor, with its part of the JVM's.
    :param memory_mib: of all jobs together, drivers included.
    :param memory_mib_at_handover: the same while jobs hand over.
    :param driver_mib: of a driver.
    :param worker_slots: of Airflow, for a turn of the supervisor; none while it waits, and none for jobs.
    :param triggers: of Airflow's triggerer.
    """

    jobs: int
    jobs_at_handover: int
    partitions_per_job: int
    slots_per_job: int
    cores_per_job: int
    cores_given: int | None
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
class Speed:
    """How fast it is.

    :param round_seconds: of a round in which all partitions have more than it reads.
    :param most_bytes_per_second: what all jobs read and deliver at most.
    :param bounded_by: what takes most of such a round: `"source"`, `"landing"`, `"transforming"` or `"rounds"`.
    :param busy: what arrives, to the most that they read: above 1 they fall behind.
    :param catch_up_seconds: how long they take to catch up after the outage; None if they never do.
    """

    round_seconds: float
    most_bytes_per_second: float
    bounded_by: str
    busy: float
    catch_up_seconds: float | None


@dataclass(frozen=True, kw_only=True)
class Behind:
    """How far it may fall behind.

    :param longest_outage_seconds: how long there may be no job before data expires unread; None if it never does.
    :param expires_after_seconds: when data begins to expire unread though jobs run, as they are too slow; None if they
        keep up, or it never does.
    :param after_noticed_death_seconds: until a dead job's partitions are read on, where Airflow sees it die.
    """

    longest_outage_seconds: float | None
    expires_after_seconds: float | None
    after_noticed_death_seconds: float


@dataclass(frozen=True, kw_only=True)
class Requests:
    """What it asks of others in a second, for as long as it keeps up, and at most.

    :param source: calls to the source.
    :param source_at_most: while it catches up.
    :param store_reads: calls to the store that read.
    :param store_writes: items that it writes to the store.
    """

    source: float | None
    source_at_most: float | None
    store_reads: float
    store_writes: float


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A plan of an ingestion.

    :param source: the source's name.
    :param load: what it is for.
    :param needs: what it needs.
    :param speed: how fast it is.
    :param behind: how far it may fall behind.
    :param requests: what it asks of others.
    :param warnings: what does not fit, each with the remedy.
    :param assumptions: what it is reckoned with.
    """

    source: str
    load: Load
    needs: Needs
    speed: Speed
    behind: Behind
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
            "needs": asdict(self.needs),
            "speed": asdict(self.speed),
            "behind": asdict(self.behind),
            "requests": asdict(self.requests),
            "warnings": list(self.warnings),
            "assumptions": [asdict(each) for each in self.assumptions.all()],
        }


def plan(spec: IngestionSpec, load: Load, capacity: Capacity, assumptions: Assumptions) -> Plan:
    """Return what an ingestion needs, how fast it is, and how far it may fall behind.

    :param spec: the ingestion.
    :param load: what arrives.
    :param capacity: what the source gives.
    :param assumptions: what to reckon with.
    :raises ConfigurationError: if the load is none.
    """
    load.check()
    planner = _Planner(spec, load, capacity, assumptions)
    needs, speed = planner.needs(), planner.speed()
    return Plan(
        source=spec.source,
        load=load,
        needs=needs,
        speed=speed,
        behind=planner.behind(speed),
        requests=planner.requests(speed),
        warnings=tuple(planner.warnings(needs, speed)),
        assumptions=assumptions,
    )


class _Planner:
    def __init__(self, spec: IngestionSpec, load: Load, capacity: Capacity, assumptions: Assumptions) -> None:
        self._spec, self._load, self._capacity, self._assumed = spec, load, capacity, assumptions
        self._rounds = spec.tuning.rounds
        self._jobs = min(_most_jobs(spec.supervise), load.partitions)
        self._per_job = math.ceil(load.partitions / self._jobs)
        self._given = cores_given(spec.tuning.spark)
        self._needed = self._cores_to_work()
        self._cores = self._given or self._needed

    # What it needs

    def _cores_to_work(self) -> int:
        """Return how many cores of a job are as busy as is planned."""
        records = self._load.bytes_per_second / self._load.record_bytes * self._assumed.skew / self._jobs
        return max(math.ceil(records * self._seconds_per_record / self._assumed.busy_fraction), 1)

    @property
    def _landing_seconds(self) -> float:
        return self._assumed.landing_seconds(self._load.record_bytes)

    @property
    def _transforming_seconds(self) -> float:
        if self._spec.schema is None and self._spec.transform is None:
            return 0.0
        return self._assumed.transforming_seconds(self._load.record_bytes)

    @property
    def _seconds_per_record(self) -> float:
        return self._landing_seconds + self._transforming_seconds

    @property
    def _slots(self) -> int:
        return min(self._cores, self._per_job)

    @property
    def _at_once(self) -> int:
        """How many partitions a slot reads at the same time, while one of several is left to a delivery."""
        used = max(self._cores - 1, 1)
        return math.ceil(self._per_job / min(used, self._per_job))

    @property
    def _reading_mib(self) -> float:
        """What a slot holds of what it reads."""
        held = min(self._batch_bytes, ROW_GROUP_BYTES) * self._assumed.memory_factor / MIB
        return min(self._at_once * (held + self._assumed.page_mib), self._rounds.slot_memory_bytes / MIB)

    def needs(self) -> Needs:
        """Return what it needs."""
        spark, stopping = self._spec.tuning.spark, self._spec.supervise.stop_task_count
        at_handover = self._jobs + min(stopping or self._jobs, self._jobs)
        python = self._assumed.python_mib + self._reading_mib
        per_executor = spark.executor_cores or 1
        executor = _mib(spark.executor_memory) or self._assumed.executor_memory_mib
        per_core = python + executor / per_executor
        driver = _mib(spark.driver_memory) or self._assumed.driver_memory_mib
        of_job = per_core * self._cores + driver
        return Needs(
            jobs=self._jobs,
            jobs_at_handover=at_handover,
            partitions_per_job=self._per_job,
            slots_per_job=self._slots,
            cores_per_job=self._needed,
            cores_given=self._given,
            cores=self._cores * self._jobs,
            cores_at_handover=self._cores * at_handover,
            python_mib_per_core=math.ceil(python),
            memory_mib_per_core=math.ceil(per_core),
            memory_mib=math.ceil(of_job * self._jobs),
            memory_mib_at_handover=math.ceil(of_job * at_handover),
            driver_mib=math.ceil(driver),
        )

    # How fast it is

    @property
    def _read_bytes_per_second(self) -> float:
        """What a partition gives to a job, at most."""
        most = self._capacity.read_bytes_per_second
        if most is None:
            return math.inf
        return most / (1 + self._assumed.other_readers) if self._capacity.is_shared else most

    @property
    def _batch_bytes(self) -> float:
        """What is read of a partition in a round, at most."""
        return min(
            self._read_bytes_per_second * self._rounds.round_duration.total_seconds(), self._rounds.max_batch_bytes
        )

    def speed(self) -> Speed:
        """Return how fast it is."""
        of_round = self._batch_bytes * self._per_job
        records = of_round / self._load.record_bytes
        reading = self._batch_bytes / self._read_bytes_per_second
        landing = records * self._landing_seconds / self._cores
        transforming = records * self._transforming_seconds / self._cores
        seconds = max(reading, landing) + transforming + self._assumed.round_overhead_s
        parts = {
            "source": reading if reading >= landing else 0.0,
            "landing": landing if landing > reading else 0.0,
            "transforming": transforming,
            "rounds": self._assumed.round_overhead_s,
        }
        # The busiest partition is read no faster than the others.
        most = self._load.partitions * self._batch_bytes / seconds / self._assumed.skew
        arriving = self._load.bytes_per_second
        ahead = most - arriving
        return Speed(
            round_seconds=seconds,
            most_bytes_per_second=most,
            bounded_by=max(parts, key=lambda name: parts[name]),
            busy=arriving / most,
            catch_up_seconds=self._load.outage.total_seconds() * arriving / ahead if ahead > 0 else None,
        )

    def behind(self, speed: Speed) -> Behind:
        """Return how far it may fall behind."""
        kept = None if self._load.retention is None else self._load.retention.total_seconds()
        is_too_slow = speed.busy > 1
        return Behind(
            longest_outage_seconds=None if kept is None else max(kept - self._assumed.job_start_s, 0.0),
            expires_after_seconds=kept / (1 - 1 / speed.busy) if kept is not None and is_too_slow else None,
            after_noticed_death_seconds=self._assumed.noticed_death_s + self._assumed.job_start_s,
        )

    # What it asks of others

    def requests(self, speed: Speed) -> Requests:
        """Return what it asks of others, while what arrives is read in every round."""
        pace = self._capacity.reads_per_second
        least = self._assumed.round_overhead_s + (DRAINING_READS / pace if pace else 0.0)
        working = speed.busy * (1 - self._assumed.round_overhead_s / speed.round_seconds)
        seconds = min(least / (1 - working), speed.round_seconds) if working < 1 else speed.round_seconds
        rounds = 1 / seconds
        batches = self._load.partitions * rounds
        # Iterators are kept from round to round; a subscription is one call.
        source = None if pace is None else batches * (DRAINING_READS if pace else 1)
        return Requests(
            source=source,
            source_at_most=None if pace is None else self._load.partitions * (pace or rounds),
            store_reads=self._jobs * rounds * self._assumed.store_reads_per_round,
            store_writes=batches * self._assumed.store_writes_per_batch,
        )

    # What does not fit

    def warnings(self, needs: Needs, speed: Speed) -> list[str]:
        """Return what does not fit, each with the remedy."""
        found = []
        wanted, load, capacity = _most_jobs(self._spec.supervise), self._load, self._capacity
        if wanted > self._jobs:
            found.append(f"task_count is {wanted}, and there are {self._jobs} partitions: as many jobs are started")
        if capacity.written_bytes_per_second is not None:
            most = capacity.written_bytes_per_second * load.partitions / self._assumed.skew
            if load.bytes_per_second > most:
                found.append(
                    f"{load.bytes_per_second / MB:g} MB/s is more than {load.partitions} partitions take, "
                    f"{most / MB:.1f} MB/s: check the load, or give the source more partitions"
                )
        if needs.cores_given is not None and needs.cores_given < needs.cores_per_job:
            found.append(
                f"the spec gives a job {needs.cores_given} cores, and it needs {needs.cores_per_job}: give it more by "
                "tuning.spark, or raise task_count"
            )
        if speed.busy > 1:
            found.append(f"jobs fall behind: {_remedy(speed)}")
        elif speed.busy > self._assumed.busy_fraction:
            found.append(f"jobs are busy for {speed.busy:.0%} of the time, so they catch up slowly: {_remedy(speed)}")
        kept = load.retention
        if kept is not None and load.outage >= kept:
            found.append(f"an outage of {load.outage} is as long as the source keeps its data, {kept}: data expires")
        return found


def _remedy(speed: Speed) -> str:
    match speed.bounded_by:
        case "source":
            return "the source gives no more: let others read less or read as a consumer of your own, or split it"
        case "rounds":
            return "rounds are too short: raise tuning.rounds.round_duration and max_batch_bytes"
        case _:
            return f"{speed.bounded_by} takes the time: give jobs more cores, or raise task_count"


def _most_jobs(supervise: SuperviseSettings) -> int:
    scaling = supervise.auto_scale
    return supervise.task_count if scaling is None else scaling.task_count_max


def cores_given(spark: SparkSettings) -> int | None:
    """Return how many cores of executors a spec gives to a job; None if it does not say."""
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
