"""Errors of S3 are classified as boto3 and pyarrow raise them; see tests/integration/test_outages_of_buckets.py."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_coordination.spark.access import refusal

PATH = "lake/clicks/a.parquet"
OF_ARROW = "When uploading part for key 'clicks/403/forbidden' in bucket 'lake': AWS Error {} during {} operation: {}"


@pytest.mark.parametrize(
    ("said", "answer", "remedy"),
    [
        (OF_ARROW.format("ACCESS_DENIED", "ListObjectsV2", "Access Denied"), {}, "allow s3:ListBucket to"),
        (OF_ARROW.format("ACCESS_DENIED", "UploadPart", "Access Denied"), {}, "allow s3:PutObject to"),
        (
            OF_ARROW.format("UNKNOWN (HTTP status 301)", "PutObject", "No response body.")
            + " Looks like the configured region is 'us-east-1' while the bucket is located in 'eu-west-1'.",
            {},
            "'aws_conn_id' to 'eu-west-1'",
        ),
        (
            "An error occurred (PermanentRedirect) when calling the PutObject operation: use the specified endpoint",
            {"Error": {"Code": "PermanentRedirect", "Endpoint": "lake.s3-ap-southeast-2.amazonaws.com"}},
            "'aws_conn_id' to 'ap-southeast-2'",
        ),
        (
            "An error occurred (301) when calling the HeadObject operation: Moved Permanently",
            {"Error": {"Code": "301"}, "ResponseMetadata": {"HTTPHeaders": {"x-amz-bucket-region": "eu-west-1"}}},
            "'aws_conn_id' to 'eu-west-1'",
        ),
        (
            "An error occurred (KMS.DisabledException) when calling the PutObject operation: it is disabled",
            {"Error": {"Code": "KMS.DisabledException"}},
            "allow kms:GenerateDataKey and kms:Decrypt on it",
        ),
    ],
)
def test_refusal_names_its_remedy(said: str, answer: dict[str, Any], remedy: str) -> None:
    found = refusal(PATH, said, answer)
    assert found is not None
    assert remedy in found.remedy
    assert said in str(found)


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (OF_ARROW.format("SLOW_DOWN", "PutObject", "Please reduce your request rate."), {}),
        (OF_ARROW.format("NETWORK_CONNECTION", "ListObjectsV2", "curlCode: 7, Could not connect to server"), {}),
        ("An error occurred (SlowDown) when calling the PutObject operation", {"Error": {"Code": "SlowDown"}}),
    ],
)
def test_transient_errors_are_no_refusal(said: str, answer: dict[str, Any]) -> None:
    assert refusal(PATH, said, answer) is None
