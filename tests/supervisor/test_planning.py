"""Plans state cores, memory, speed, possible lag and requests, computed from measured figures."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.source_kind import Capacity
from airflow_provider_coordination.spark.round_pace import RESERVE
from airflow_provider_coordination.spark.sinks import TABLE_COMMIT_INTERVAL
from airflow_provider_coordination.supervisor.assumptions import Assumptions
from airflow_provider_coordination.supervisor.planning import MB, MIB, Load, Plan, cores_in_spec, plan
from airflow_provider_coordination.supervisor.settings import SparkSettings
from airflow_provider_coordination.supervisor.spec import IngestionSpec

DAY = timedelta(days=1)
SHARDS = Capacity(
    read_bytes_per_second=2 * MIB, is_shared=True, written_bytes_per_second=MIB, reads_per_second=4.0, retention=DAY
)
COSTLY = Assumptions(
    parsing_us_per_record=0,
    parsing_us_per_kib=0,
    landing_us_per_record=100,
    landing_us_per_kib=0,
    transforming_us_per_record=300,
    transforming_us_per_kib=0,
    round_overhead_s=0,
)
"""Ten thousand records a second land on a core, and a third as many are transformed."""


def a_spec(
    *,
    sink: dict[str, Any] | None = None,
    schema: str | None = None,
    tuning: dict[str, Any] | None = None,
    rounds: dict[str, Any] | None = None,
    **supervise: Any,
) -> IngestionSpec:
    return IngestionSpec.read(
        {
            "version": 1,
            "reads": {"kinesis": {"streams": "clicks", "aws_conn_id": None, "region_name": "eu-west-1"}},
            "writes": [sink or {"parquet": {"path": "/data/lake/clicks"}}],
            **({"schema": schema} if schema else {}),
            **({"tuning": tuning} if tuning else {}),
            **({"rounds": rounds} if rounds else {}),
            **({"supervise": supervise} if supervise else {}),
        }
    )


def a_load(partitions: int = 8, mb_per_second: float = 4.0, record_bytes: float = 1000.0, **given: Any) -> Load:
    return Load(
        partitions=partitions,
        bytes_per_second=mb_per_second * MB,
        record_bytes=record_bytes,
        **{"retention": DAY, **given},
    )


def planned(
    spec: IngestionSpec | None = None,
    load: Load | None = None,
    capacity: Capacity = SHARDS,
    assumptions: Assumptions | None = None,
) -> Plan:
    return plan(spec or a_spec(), load or a_load(), capacity, assumptions or Assumptions())


# What it needs


def test_job_count_follows_the_spec_and_doubles_at_handover() -> None:
    resources = planned(a_spec(task_count=3)).resources
    assert (resources.jobs, resources.jobs_at_handover) == (3, 6)
    assert planned(a_spec(task_count=3, stop_task_count=1)).resources.jobs_at_handover == 4


def test_jobs_do_not_exceed_partitions() -> None:
    plan = planned(a_spec(task_count=9), a_load(8))
    assert plan.resources.jobs == 8
    assert plan.warnings == ("task_count is 9, but the source has 8 partitions: only 8 jobs start",)


def test_scaled_plan_assumes_the_maximum_of_jobs() -> None:
    spec = a_spec(auto_scale={"task_count_min": 1, "task_count_max": 4})
    assert planned(spec).resources.jobs == 4


def test_single_core_reads_all_partitions_of_a_job() -> None:
    resources = planned(a_spec(task_count=2), a_load(34, 0.1)).resources
    assert (resources.partitions_per_job, resources.cores_per_job, resources.slots_per_job) == (17, 1, 1)
    assert (resources.cores, resources.cores_at_handover) == (2, 4)


def test_cores_follow_the_processing_time_of_records() -> None:
    load = a_load(4, 13, 1000)  # 13,000 records a second, 1.3 seconds of a core each second, at 0.7
    assert planned(load=load, assumptions=COSTLY).resources.cores_per_job == 2
    transformed = planned(a_spec(schema="id STRING"), load, assumptions=COSTLY)
    assert transformed.resources.cores_per_job == 8


def test_memory_covers_concurrent_reads_and_the_jvm() -> None:
    assumptions = Assumptions(
        python_mib=100, page_mib=5, memory_factor=2, executor_memory_mib=1000, driver_memory_mib=500, round_overhead_s=1
    )
    resources = planned(a_spec(), a_load(8, 0.1), assumptions=assumptions).resources
    assert resources.python_mib_per_core == 100 + 8 * (16 * 2 + 5), "a row group of eight"
    assert resources.memory_mib_per_core == 396 + 1000
    assert resources.memory_mib == 1396 + 500
    assert resources.memory_mib_at_handover == 2 * resources.memory_mib
    many = planned(a_spec(), a_load(100, 0.1), assumptions=assumptions).resources
    assert many.python_mib_per_core == 100 + 512, "and no more than a slot may hold"


def test_memory_from_the_spec_is_used() -> None:
    spec = a_spec(tuning={"spark": {"executor_memory": "4g", "executor_cores": 4, "driver_memory": "512m"}})
    resources = planned(spec, a_load(8, 0.1)).resources
    assert resources.memory_mib_per_core - resources.python_mib_per_core == 1024
    assert (resources.driver_mib, resources.cores_in_spec) == (512, 4)


@pytest.mark.parametrize(
    ("spark", "cores"),
    [
        ({}, None),
        ({"total_executor_cores": 6}, 6),
        ({"num_executors": 3, "executor_cores": 2}, 6),
        ({"executor_cores": 2}, 2),
        ({"conf": {"spark.executor.instances": 2, "spark.executor.cores": "3"}}, 6),
        ({"conf": {"spark.cores.max": "5"}}, 5),
    ],
)
def test_cores_from_the_spec_are_found(spark: dict[str, Any], cores: int | None) -> None:
    assert cores_in_spec(SparkSettings(**spark)) == cores


def test_too_few_cores_are_a_warning_and_slower() -> None:
    load, spec = a_load(4, 13), a_spec(schema="id STRING", tuning={"spark": {"total_executor_cores": 1}})
    few = planned(spec, load, assumptions=COSTLY)
    assert any("the spec gives a job 1 cores, but it needs 8" in warning for warning in few.warnings)
    enough = planned(a_spec(schema="id STRING"), load, assumptions=COSTLY)
    assert few.throughput.round_seconds > enough.throughput.round_seconds
    assert few.throughput.utilization > enough.throughput.utilization


# How fast it is


def test_partition_throughput_follows_its_limit_minus_round_pauses() -> None:
    throughput = planned(load=a_load(8, 4)).throughput
    assert throughput.round_seconds == 11
    assert throughput.max_bytes_per_second == pytest.approx(8 * 2 * MIB * 10 / 11)
    assert throughput.bottleneck == "source"


def test_other_readers_share_throughput_unless_it_is_reserved() -> None:
    shared = Assumptions(other_readers=1)
    alone, beside = planned().throughput, planned(assumptions=shared).throughput
    assert beside.max_bytes_per_second == pytest.approx(alone.max_bytes_per_second / 2)
    own = planned(capacity=replace(SHARDS, is_shared=False), assumptions=shared).throughput
    assert own.max_bytes_per_second == alone.max_bytes_per_second


def test_full_batch_ends_reading_early() -> None:
    spec = a_spec(rounds={"max_batch_bytes": 4 * MIB})
    assert planned(spec).throughput.round_seconds == 3


@pytest.mark.parametrize(
    ("freshness", "sink", "reads_for"),
    [
        (4, "parquet", (4 - 1) * (1 - RESERVE)),
        (3.5, "delta", TABLE_COMMIT_INTERVAL.total_seconds()),
        (100, "parquet", 10),
        (1, "parquet", 1),
    ],
    ids=["the target", "commits of a table", "round_duration", "the overhead"],
)
def test_target_of_freshness_shortens_rounds(freshness: float, sink: str, reads_for: float) -> None:
    spec = a_spec(sink={sink: {"path": "/data/lake/clicks"}}, rounds={"freshness": freshness})
    assert planned(spec).throughput.round_seconds == pytest.approx(reads_for + 1)


def test_cores_are_the_bottleneck_if_landing_is_slower() -> None:
    spec = a_spec(tuning={"spark": {"total_executor_cores": 1}})
    throughput = planned(spec, a_load(4, 1, 100), assumptions=COSTLY).throughput
    assert throughput.max_bytes_per_second == pytest.approx(10_000 * 100)
    assert throughput.bottleneck == "landing"


def test_transform_time_adds_to_reading_time() -> None:
    spec = a_spec(schema="id STRING", tuning={"spark": {"total_executor_cores": 1}})
    assumptions = replace(COSTLY, landing_us_per_record=0)
    throughput = planned(spec, a_load(1, 0.1, 1000), assumptions=assumptions).throughput
    records = 20 * MIB / 1000
    assert throughput.round_seconds == pytest.approx(10 + records * 300e-6)
    assert throughput.bottleneck == "source"


def test_catch_up_time_follows_the_spare_throughput() -> None:
    plan = planned(load=a_load(8, 4, outage=timedelta(hours=2)))
    most = plan.throughput.max_bytes_per_second / MB
    assert plan.throughput.catch_up_seconds == pytest.approx(7200 * 4 / (most - 4))
    assert plan.throughput.utilization == pytest.approx(4 / most)


def test_busiest_partition_catches_up_last() -> None:
    even, skewed = planned().throughput, planned(assumptions=Assumptions(skew=2)).throughput
    assert skewed.utilization == pytest.approx(2 * even.utilization)
    assert skewed.catch_up_seconds is not None and even.catch_up_seconds is not None
    assert skewed.catch_up_seconds > even.catch_up_seconds


# How far it may fall behind


def test_data_expires_after_an_outage_as_long_as_the_retention() -> None:
    lag_limits = planned(assumptions=Assumptions(job_start_s=60)).lag_limits
    assert lag_limits.longest_outage_seconds == DAY.total_seconds() - 60
    assert lag_limits.expires_after_seconds is None


def test_too_slow_jobs_lose_data_and_never_catch_up() -> None:
    plan = planned(load=a_load(8, 8), assumptions=Assumptions(other_readers=3))
    assert plan.throughput.utilization > 1 and plan.throughput.catch_up_seconds is None
    falls_behind_by = 1 - 1 / plan.throughput.utilization  # seconds in a second
    assert plan.lag_limits.expires_after_seconds == pytest.approx(DAY.total_seconds() / falls_behind_by)
    [warning] = plan.warnings
    assert "jobs fall behind" in warning and "read it as a separate consumer" in warning


def test_data_kept_forever_never_expires() -> None:
    lag_limits = planned(load=a_load(retention=None)).lag_limits
    assert (lag_limits.longest_outage_seconds, lag_limits.expires_after_seconds) == (None, None)


def test_outage_as_long_as_the_retention_is_a_warning() -> None:
    assert any("data expires" in each for each in planned(load=a_load(outage=DAY)).warnings)


def test_load_above_the_partition_limit_is_a_warning() -> None:
    [warning, *_] = planned(load=a_load(2, 4)).warnings
    assert "4 MB/s exceeds the 2.1 MB/s that 2 partitions accept" in warning


# What it asks of others


def test_round_costs_two_source_requests_and_store_writes() -> None:
    assumptions = Assumptions(round_overhead_s=1.5, store_reads_per_round=8, store_writes_per_batch=4)
    requests = planned(a_spec(task_count=2), a_load(10, 0.0), assumptions=assumptions).requests
    assert requests.source == pytest.approx(10 * 2 / 2), "a round of two seconds: half of one for two reads"
    assert requests.source_while_catching_up == 10 * 4
    assert requests.store_reads == pytest.approx(2 * 8 / 2)
    assert requests.store_writes == pytest.approx(10 * 4 / 2)


def test_rounds_with_a_target_wait_for_what_arrives() -> None:
    assumptions = Assumptions(round_overhead_s=1.5, store_reads_per_round=8)
    spec = a_spec(rounds={"freshness": 7.5})
    assert planned(spec, a_load(10, 0.0), assumptions=assumptions).requests.store_reads == pytest.approx(8 / 4)


def test_target_that_is_out_of_reach_is_a_warning() -> None:
    sink = {"delta": {"path": "/data/lake/clicks"}}
    [warning] = planned(a_spec(sink=sink, rounds={"freshness": 3})).warnings
    assert "cannot be as fresh as 3 s: a round takes at least 2.5 s, and the delivery of its records 1 s" in warning
    assert "raise rounds.freshness" in warning
    assert not planned(a_spec(sink=sink, rounds={"freshness": 4})).warnings


def test_short_rounds_for_a_target_end_by_a_longer_one() -> None:
    spec = a_spec(rounds={"freshness": 2})
    [warning] = planned(spec, a_load(8, 8), assumptions=Assumptions(round_overhead_s=1.0)).warnings
    assert "rounds are too short: raise rounds.freshness" in warning


def test_subscribed_source_is_not_polled() -> None:
    sent = replace(SHARDS, reads_per_second=0.0)
    requests = planned(load=a_load(10, 0.0), capacity=sent).requests
    assert requests.source == requests.source_while_catching_up == pytest.approx(10), "one subscription in each round"


def test_source_without_limits_has_unknown_requests() -> None:
    plan = planned(capacity=Capacity())
    assert plan.requests.source is None
    assert plan.throughput.bottleneck == "landing" or plan.throughput.bottleneck == "rounds"


# What it is reckoned with


def test_every_assumption_has_its_unit_and_origin() -> None:
    assumptions = Assumptions().all()
    assert "job_start_s" in {each.name for each in assumptions}
    for each in assumptions:
        assert each.unit and each.what and each.source, each.name


def test_overridden_assumption_is_shown_as_given() -> None:
    assumptions = Assumptions().with_values({"job_start_s": 120})
    shown = {each.name: each for each in assumptions.all()}
    assert (shown["job_start_s"].value, shown["job_start_s"].source) == (120, "set by user")
    assert shown["landing_us_per_kib"].source == "measured by benchmarks.landing_cost"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"landing": 1.0}, "assumption 'landing' is unknown; the assumptions are driver_memory_mib,"),
        ({"job_start_s": -1.0}, "assumption 'job_start_s' must be a positive number; got -1"),
        ({"target_utilization": 0.0}, "assumption 'target_utilization' must be a positive number; got 0"),
        ({"round_overhead_s": 0.0}, "assumption 'round_overhead_s' must be a positive number; got 0"),
        ({"target_utilization": 1.1}, "assumption 'target_utilization' must be at most 1; got 1.1"),
        ({"skew": float("nan")}, "assumption 'skew' must be a positive number; got nan"),
    ],
    ids=str,
)
def test_invalid_assumption_is_refused(values: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Assumptions().with_values(values)


@pytest.mark.parametrize(
    "load", [a_load(0), a_load(record_bytes=0.0), a_load(mb_per_second=-1.0), a_load(retention=timedelta(0))], ids=str
)
def test_invalid_load_is_refused(load: Load) -> None:
    with pytest.raises(ConfigurationError, match=r"plan: .* must"):
        planned(load=load)


@given(
    st.integers(1, 2000),
    st.floats(0, 4000),
    st.floats(1, 1e6),
    st.integers(1, 50),
    st.booleans(),
    st.sampled_from([SHARDS, replace(SHARDS, reads_per_second=0.0, is_shared=False), Capacity()]),
)
def test_plan_is_consistent_for_any_load(
    partitions: int, mb_per_second: float, record_bytes: float, task_count: int, transforms: bool, capacity: Capacity
) -> None:
    spec = a_spec(schema="id STRING" if transforms else None, task_count=task_count)
    plan = planned(spec, a_load(partitions, mb_per_second, record_bytes), capacity)
    resources, throughput = plan.resources, plan.throughput
    assert resources.jobs <= min(partitions, task_count) and resources.jobs * resources.partitions_per_job >= partitions
    assert throughput.round_seconds > 0 and throughput.max_bytes_per_second > 0
    assert (throughput.utilization < 1) == (throughput.catch_up_seconds is not None) or throughput.utilization == 1
    assert (plan.lag_limits.expires_after_seconds is not None) == (throughput.utilization > 1)
    assert plan.requests.store_writes > 0
    if capacity.read_bytes_per_second is not None:
        assert throughput.max_bytes_per_second <= partitions * capacity.read_bytes_per_second
