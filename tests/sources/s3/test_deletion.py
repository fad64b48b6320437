"""Only objects that were read are deleted, on condition that they are unchanged."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_coordination.sources.s3.objects import delete_s3
from tests.sources.s3.scans import MODIFIED, found


class StubBucket:
    """S3 with one object, as a client of boto3 shows it."""

    def __init__(self, etag: str, modified: Any) -> None:
        self.head = {"ETag": etag, "LastModified": modified}
        self.deleted: list[dict[str, Any]] = []

    def head_object(self, **request: Any) -> dict[str, Any]:
        return self.head

    def delete_object(self, **request: Any) -> None:
        self.deleted.append(request)


def test_deletion_request_names_the_version() -> None:
    listed = found("a.csv")
    bucket = StubBucket(listed.version, listed.modified)
    assert delete_s3(bucket, listed)
    assert bucket.deleted == [{"Bucket": "bucket", "Key": "in/a.csv", "IfMatch": listed.version}]


@pytest.mark.parametrize(("etag", "later"), [('"another"', 0), (None, 1)])
def test_object_uploaded_again_is_not_deleted(etag: str | None, later: int) -> None:
    listed = found("a.csv")
    bucket = StubBucket(etag or listed.version, MODIFIED + timedelta(seconds=later))
    assert not delete_s3(bucket, listed)
    assert bucket.deleted == []
