"""`S3Objects` in a DAG become the settings of its supplier and reader."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.hooks.connections import AirflowConnections
from airflow_provider_coordination.settings import check_parsed
from airflow_provider_coordination.sources.kinds import reader_of
from airflow_provider_coordination.sources.s3.kind import S3Objects
from airflow_provider_coordination.sources.s3.reader import ObjectReader
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.airflow.conftest import SECRET


def test_path_alone_selects_everything_there() -> None:
    assert S3Objects(paths="/data/in").resolved() == S3Objects(paths=("/data/in",))


def test_forget_after_is_dropped_for_an_interval() -> None:
    reads = S3Objects(paths="s3://bucket/in/", forget_after="86400")
    assert reads.resolved().forget_after == timedelta(days=1)
    start, end = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    assert reads.within(start, end).resolved().forget_after is None


def test_values_are_accepted_directly_and_from_templates() -> None:
    expected = S3Objects(
        paths=("/data/a", "/data/b"),
        format="csv",
        format_options={"delimiter": ";", "null_values": ["", "-"]},
        include=("*.csv",),
        exclude=("old/**",),
        exclude_suffixes=(".tmp",),
        hidden=True,
        start_time=datetime(2026, 1, 1, tzinfo=UTC),
        end_time=datetime(2026, 1, 2, tzinfo=UTC),
        interval=timedelta(hours=1),
        count=3,
        folder_depth=2,
        delete_on_success=True,
        wait_for="_SUCCESS",
        wait_delay=timedelta(minutes=1),
        wait_retries=5,
        max_objects=10,
        max_bytes=1000,
    )
    plain = S3Objects(
        paths=["/data/a", "/data/b"], format="csv", format_options={"delimiter": ";", "null_values": ("", "-")},
        include="*.csv", exclude=["old/**"], exclude_suffixes=".tmp", hidden=True,
        start_time=datetime(2026, 1, 1, tzinfo=UTC), end_time=datetime(2026, 1, 2, tzinfo=UTC),
        interval=timedelta(hours=1), count=3, folder_depth=2, delete_on_success=True, wait_for="_SUCCESS",
        wait_delay=timedelta(minutes=1), wait_retries=5, max_objects=10, max_bytes=1000,
    )  # fmt: skip
    rendered = S3Objects(
        paths=["/data/a", "/data/b"], format="csv", format_options={"delimiter": ";", "null_values": ["", "-"]},
        include="*.csv", exclude=["old/**"], exclude_suffixes=".tmp", hidden="True",
        start_time="2026-01-01T01:00:00+01:00", end_time="2026-01-02T00:00:00Z", range="None", interval="3600",
        count="3", folder_depth="2", delete_on_success="true", wait_for="_SUCCESS", wait_delay="60", wait_retries="5",
        max_objects="10", max_bytes="1000",
    )  # fmt: skip
    assert plain.resolved() == expected
    assert rendered.resolved() == expected


@pytest.mark.parametrize(
    ("given", "source"),
    [
        ({"paths": "s3://bucket/in/clicks/"}, "bucket/in/clicks"),
        ({"paths": ["s3a://bucket"]}, "bucket"),
        ({"paths": "/data/in"}, "/data/in"),
        ({"paths": ["/a", "/b"], "source": "both"}, "both"),
    ],
)
def test_source_is_named_after_its_only_path(given: dict[str, Any], source: str) -> None:
    assert S3Objects(**given).default_source == source


def test_several_paths_need_a_common_name() -> None:
    with pytest.raises(ConfigurationError, match="'source' is missing: the paths '/a', '/b' need a common source name"):
        _ = S3Objects(paths=["/a", "/b"]).default_source


def test_location_excludes_bounds_and_secrets() -> None:
    reads = S3Objects(paths=["/b", "/a"], include="*.csv", start_time="2026-01-01T00:00:00Z")
    assert reads.reads_from == {"paths": ["/a", "/b"], "include": ["*.csv"]}


def test_aws_connection_is_resolved_in_the_task(connect: Any) -> None:
    connect("minio", "aws", login="AKIA", password=SECRET, extra={"endpoint_url": "http://minio:9000"})
    reads = S3Objects(paths="s3://bucket/in", aws_conn_id="minio", region_name="eu-west-1")
    connected = reads.connect(AirflowConnections())
    assert connected.reads.kind == reads.kind == "s3"
    assert S3Objects.from_mapping(json.loads(json.dumps(connected.reads.settings))).aws == AwsSettings(
        region="eu-west-1", endpoint_url="http://minio:9000", access_key_id="AKIA", secret_access_key=SECRET
    )
    assert isinstance(reader_of(connected.reads), ObjectReader)
    assert SECRET not in repr(reads)


def test_local_files_need_no_aws_connection(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    connected = S3Objects(paths=str(tmp_path), aws_conn_id="not there").connect(AirflowConnections())
    coordinator = SourceCoordinator(InMemoryStore(), "files", "a")
    coordinator.initialize()
    assert len(coordinator.supply(connected.supplier(coordinator)) or []) == 1


def test_import_loads_neither_arrow_nor_boto3() -> None:
    code = """
import sys
from airflow_provider_coordination.sources.s3.kind import S3Objects
S3Objects(paths="s3://bucket/in", format="csv")
print({"pyarrow", "boto3", "botocore", "pyspark"} & set(sys.modules))
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "set()"


def test_paths_may_be_given_by_position() -> None:
    assert S3Objects("/data/in", format="csv") == S3Objects(paths="/data/in", format="csv")
    with pytest.raises(TypeError, match="positional argument"):
        S3Objects("/data/in", "orders")  # type: ignore[misc]


def test_parsing_needs_no_arrow_for_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "airflow_provider_coordination.sources.s3.columns", None)
    check_parsed(S3Objects("/data/in", format="csv", format_options={"columns": "a INT"}))
