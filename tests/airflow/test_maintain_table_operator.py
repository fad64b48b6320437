"""The operator maintains a table, and reports its changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable as Table

from airflow_provider_coordination.airflow_names import AirflowFailException
from airflow_provider_coordination.operators.maintain_table import MaintainTableOperator
from airflow_provider_coordination.spark.writes import DeltaTable, ForeachBatch
from airflow_provider_coordination.spark.writes.iceberg import IcebergTable
from tests.support.sinks import SINKS, SinkTarget, an_attempt, catalog_in

VALUES = {"a-1": [1, 2], "b-1": [3]}
FUNCTION = ForeachBatch("job:write", staging_path="/data/staging")


@pytest.fixture(params=["delta", "iceberg"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> SinkTarget:
    made = SinkTarget(SINKS[request.param], tmp_path / "table")  # type: ignore[arg-type]
    for name in VALUES:
        made.deliver(VALUES, [an_attempt(name)])
    return made


def table(target: SinkTarget) -> Any:
    if Table.is_deltatable(str(target.folder)):
        return DeltaTable(str(target.folder))
    return IcebergTable("lake.clicks", catalog=catalog_in(target.folder))


def maintain(table: Any, **given: Any) -> dict[str, Any]:
    return MaintainTableOperator(task_id="maintain", table=table, **given).execute({})


def test_operator_compacts_small_files_and_returns_counts(target: SinkTarget) -> None:
    done = maintain(table(target))

    assert {name: done[name] for name in ("is_dry_run", "files_compacted", "files_removed", "bytes_removed")} == {
        "is_dry_run": False, "files_compacted": 2, "files_removed": 0, "bytes_removed": 0,
    }  # fmt: skip
    assert target.visible == VALUES


def test_dry_run_returns_the_same_counts_and_changes_nothing(target: SinkTarget) -> None:
    assert maintain(table(target), is_dry_run="true")["files_compacted"] == 2
    assert maintain(table(target))["files_compacted"] == 2


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"table": FUNCTION}, "of kind 'foreach_batch', which needs no maintenance"),
        ({"table": DeltaTable("/nowhere/clicks")}, "there is no table"),
        ({"table": DeltaTable("/nowhere/clicks"), "retention": 60}, "'retention' must be at least PT1H"),
    ],
)
def test_unmaintainable_sink_fails_without_a_retry(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(AirflowFailException, match=problem):
        maintain(**given)


def test_invalid_sink_is_refused_when_parsed() -> None:
    with pytest.raises(ValueError, match=r"must be a sink of 'spark\.writes'"):
        MaintainTableOperator(task_id="maintain", table="/data/lake/clicks")  # type: ignore[arg-type]
