"""Both sides of the comparison with `aws_kinesis_agg` return the same records, except those that the library drops."""

from __future__ import annotations

import pytest

from airflow_provider_coordination.sources.kinesis.user_records import user_records
from benchmarks.deaggregation import boto3_records, columns_of_peer, damaged, page_of


def test_both_return_the_same_records_of_undamaged_aggregates() -> None:
    page = page_of(50, 1)
    theirs, ours = columns_of_peer(boto3_records(page)), user_records(page).columns
    assert theirs.drop_columns(["data"]).equals(ours.drop_columns(["data"]))
    # The library encodes the data of user records.
    assert len(theirs) == len(ours)


def test_peer_drops_records_of_a_damaged_aggregate(capfd: pytest.CaptureFixture[str]) -> None:
    found = damaged()
    assert found["ours"] == found["events"] == 10
    assert found["aws_kinesis_agg"] < 10
