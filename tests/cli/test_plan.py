"""`airflow-coordination plan`: from a spec to a plan, with or without asking the source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Shell
from tests.support.kinesis_server.clock import RealClock

SPEC = """
version: 1
reads: {{kinesis: {{streams: clicks, aws_conn_id: null, region_name: eu-west-1{more}}}}}
writes: [{{parquet: {{path: /data/lake/clicks}}}}]
supervise: {{task_count: 2}}
"""


@pytest.fixture
def spec(tmp_path: Path) -> str:
    file = tmp_path / "clicks.yaml"
    file.write_text(SPEC.format(more=""))
    return str(file)


def test_plan_shows_needs_and_assumptions(shell: Shell, spec: str) -> None:
    given = ("--offline", "--partitions", "8", "--mb-per-second", "4", "--record-bytes", "1000")
    shown = shell("plan", spec, *given, store=False)
    assert (shown.exit_code, shown.err) == (0, "")
    for line in (
        "source clicks",
        "incoming                             4.00 MB/s",
        "records                              4,000/s of 1000 bytes",
        "jobs                                 2, during handover 4",
        "data expires while all jobs are down after 24 h",
        "job_start_s",
        "measured by benchmarks.landing_cost",
    ):
        assert line in shown.out


def test_script_gets_one_json_object(shell: Shell, spec: str) -> None:
    [plan] = shell(
        "plan", spec, "--offline", "--partitions", "8", "--retention-hours", "48", "--json", store=False
    ).records
    assert (plan["source"], plan["resources"]["jobs"], plan["load"]["retention_seconds"]) == ("clicks", 2, 48 * 3600)
    assert plan["load"]["mb_per_second"] == pytest.approx(8 * 2**20 / 1e6), "as much as the partitions take"
    assert set(plan) == {
        "source",
        "load",
        "resources",
        "throughput",
        "lag_limits",
        "requests",
        "warnings",
        "assumptions",
    }


def test_any_assumption_can_be_overridden(shell: Shell, spec: str) -> None:
    base = ("plan", spec, "--offline", "--partitions", "8", "--mb-per-second", "4", "--json")
    [plan] = shell(*base, "--assume", "other_readers=1", "--assume", "job_start_s=90", store=False).records
    [plain] = shell(*base, store=False).records
    assert plan["throughput"]["utilization"] == pytest.approx(2 * plain["throughput"]["utilization"])
    assert {each["name"]: each["source"] for each in plan["assumptions"]}["job_start_s"] == "set by user"


def test_dedicated_consumer_is_unaffected_by_other_readers(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "clicks.yaml"
    file.write_text(SPEC.format(more=", consumer_name: clicks"))
    args = ("--offline", "--partitions", "8", "--mb-per-second", "4", "--assume", "other_readers=1", "--json")
    [plan] = shell("plan", str(file), *args, store=False).records
    assert plan["throughput"]["utilization"] < 0.4, "others take nothing of it"


@pytest.mark.integration
def test_stream_is_queried_for_shards_and_retention(
    shell: Shell, tmp_path: Path, kinesis_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = kinesis_server.account(clock=RealClock())
    account.client().create_stream(StreamName="clicks", ShardCount=3)
    settings = account.settings()
    extra = {"region_name": settings.region, "endpoint_url": settings.endpoint_url}
    connection = {"conn_type": "aws", "login": settings.access_key_id, "password": "secret", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_STREAMS", json.dumps(connection))
    file = tmp_path / "clicks.yaml"
    file.write_text(SPEC.format(more="").replace("aws_conn_id: null, region_name: eu-west-1", "aws_conn_id: streams"))
    [plan] = shell("plan", str(file), "--json", store=False).records
    assert (plan["load"]["partitions"], plan["load"]["retention_seconds"]) == (3, 24 * 3600)


def test_unreachable_stream_is_planned_from_given_figures(shell: Shell, spec: str, tmp_path: Path) -> None:
    refused = shell("plan", spec, store=False)
    assert refused.exit_code == 2
    assert "warning: the source could not be queried:" in refused.err
    assert "error: the number of partitions is unknown: give --partitions" in refused.err
    assert shell("plan", spec, "--partitions", "4", store=False).exit_code == 0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ("--partitions", "8", "--assume", "speed"),
            "--assume must have the form NAME=VALUE with a number; got 'speed'",
        ),
        (("--partitions", "8", "--assume", "speed=1"), "assumption 'speed' is unknown; the assumptions are"),
        (("--partitions", "8", "--record-bytes", "0"), "plan: the size of a record in bytes must be positive; got 0"),
        ((), "the number of partitions is unknown: give --partitions"),
    ],
    ids=str,
)
def test_impossible_plan_is_refused(shell: Shell, spec: str, args: tuple[str, ...], message: str) -> None:
    shown = shell("plan", spec, "--offline", *args, store=False)
    assert (shown.exit_code, shown.out) == (2, "")
    assert message in shown.err


def test_wrong_spec_is_refused_with_its_own_error(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "clicks.yaml"
    file.write_text(SPEC.format(more=", stream: clicks"))
    shown = shell("plan", str(file), "--offline", store=False)
    assert shown.exit_code == 2 and "reads.kinesis" in shown.err
