"""A link from each task to the pages of the source that it works on."""

from __future__ import annotations

import pytest

from airflow_provider_coordination.links import LeasesLink
from airflow_provider_coordination.operators.reopen_partitions import ReopenPartitionsOperator
from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.writes import ParquetDataset

LINK = LeasesLink()


def test_link_leads_to_the_pages_of_the_source() -> None:
    operator = ReopenPartitionsOperator(task_id="t", source="odd/name & more", coordination_conn_id="leases")

    assert LINK.get_link(operator, ti_key=None).endswith(
        "/plugin/coordination/leases/odd%2Fname%20%26%20more/partitions"
    )


def test_link_appears_once_the_source_is_resolved() -> None:
    operator = CoordinatedSparkSubmitOperator(
        task_id="t", ingestion=Ingestion(reads=KinesisStreams("clicks"), writes=ParquetDataset("/out"))
    )
    assert LINK.get_link(operator, ti_key=None) == ""

    operator.source_worked_on = "clicks|2026-01-01"

    assert LINK.get_link(operator, ti_key=None).endswith("/coordination_default/clicks%7C2026-01-01/partitions")


@pytest.mark.parametrize("option", ["UI", "HTTP_API"])
def test_link_is_empty_without_the_pages(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"AIRFLOW__COORDINATION__{option}", "False")

    assert LINK.get_link(ReopenPartitionsOperator(task_id="t", source="orders"), ti_key=None) == ""
