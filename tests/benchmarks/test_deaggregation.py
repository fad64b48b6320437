"""What the benchmark beside `aws_kinesis_agg` compares is the same, but for what that library drops."""

from __future__ import annotations

import pytest

from airflow_provider_coordination.sources.kinesis.user_records import user_records
from benchmarks.deaggregation import as_boto3_gives_them, columns_of_the_peer, damaged, page_of


def test_of_what_is_whole_both_give_the_same_user_records() -> None:
    page = page_of(50, 1)
    theirs, ours = columns_of_the_peer(as_boto3_gives_them(page)), user_records(page).columns
    assert theirs.drop_columns(["data"]).equals(ours.drop_columns(["data"]))
    # It encodes what it takes out, whatever it was given.
    assert len(theirs) == len(ours)


def test_of_a_damaged_aggregate_the_peer_drops_what_we_let_through(capfd: pytest.CaptureFixture[str]) -> None:
    found = damaged()
    assert found["ours"] == found["events"] == 10
    assert found["aws_kinesis_agg"] < 10
