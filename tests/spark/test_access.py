"""The access that landed files and dead letters share with the connections of datasets."""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.spark.access import Access, combined_access, is_s3
from airflow_provider_coordination.spark.sink_settings import DEAD_LETTER, SinkSettings, access_of
from airflow_provider_coordination.spark.storage import open_files
from tests.support.fake_aws import fake_aws
from tests.support.job_settings import ingest
from tests.support.waiting import PATIENCE_SECONDS

LAKE, RAW, ELSE, TABLE = (AwsSettings(region=f"eu-west-{n}") for n in range(1, 5))
ACCESS = Access(
    (
        ("iceberg://catalog/default/lake.clicks", TABLE),
        ("s3://lake/clicks", LAKE),
        ("s3a://lake/clicks/_raw/", RAW),
        ("s3://else", ELSE),
        ("s3://own/clicks", None),
        ("/data/x", ELSE),
    )
)


@pytest.mark.parametrize(
    ("uri", "reached_by"),
    [
        ("s3://lake/clicks", LAKE),
        ("s3://lake/clicks/_landing/a.parquet", LAKE),
        ("s3n://lake//clicks/a", LAKE),
        ("s3://lake/clicks/_raw/a", RAW),
        ("s3://lake/clicks/_rawer/a", LAKE),
        ("s3://lake/clicks_dead", LAKE),
        ("s3://else/deep/below", ELSE),
        ("s3://own/landing", None),
        ("s3://third/clicks", TABLE),
        ("/data/x/y", None),
        ("gs://lake/clicks", None),
    ],
)
def test_access_prefers_parent_sink_then_bucket_then_first(uri: str, reached_by: AwsSettings | None) -> None:
    assert ACCESS.of(uri) == reached_by


def test_first_access_to_a_location_wins() -> None:
    table = Access((("s3://lake/clicks", ELSE), ("s3://tables/clicks", RAW)))
    both = combined_access(ACCESS, table)
    assert [both.of(uri) for uri in ("s3://lake/clicks", "s3://tables/clicks/a", "s3://else")] == [LAKE, RAW, ELSE]


def test_bucket_without_a_sink_uses_the_sink_connection() -> None:
    table = SinkSettings(name="main", kind="iceberg", location="iceberg://catalog/default/lake.clicks", aws=LAKE)
    own = SinkSettings(name="own", kind="parquet", location="s3://own/clicks")
    access = access_of([own, table])
    assert [access.of(uri) for uri in ("s3://landing/clicks", "s3://own/landing")] == [LAKE, None]
    assert access_of([own]).of("s3://landing/clicks") is None


def test_dead_letters_use_the_access_of_their_bucket() -> None:
    sink = SinkSettings(name="main", kind="parquet", location="s3://lake/clicks", aws=LAKE)
    settings = ingest(
        source="clicks", owner="a", writes=(sink,), landing_path="s3://lake/raw", dead_letter_path="s3://lake/dead",
        expires_at=None, store=None, reads=None,
    )  # fmt: skip
    assert [(each.name, each.aws) for each in settings.all_sinks] == [(DEAD_LETTER, LAKE), ("main", LAKE)]
    assert settings.access.of(settings.landing_path) == LAKE


def test_access_reaches_workers_and_hides_secrets() -> None:
    aws = AwsSettings(region="eu-west-1", access_key_id="AK", secret_access_key="hush-hush", session_token="hush-too")
    access = Access((("s3://lake/clicks", aws),))
    assert pickle.loads(pickle.dumps(access)) == access
    assert "hush" not in repr(access)


@pytest.mark.parametrize("uri", ["/data/clicks", "gs://lake/x", "s3://", "hdfs://a/s3://b"])
def test_other_uris_are_not_on_s3(uri: str) -> None:
    assert not is_s3(uri)


def test_threads_fetch_credentials_once_per_process(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = 16
    begin = threading.Barrier(threads)
    with fake_aws() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.url)
        aws = AwsSettings(
            region="eu-west-1",
            endpoint_url="http://127.0.0.1:1",
            role_arn="arn:aws:iam::123456789012:role/once",
            access_key_id="key",
            secret_access_key="secret",
        )

        def open_one(number: int) -> object:
            begin.wait(PATIENCE_SECONDS)
            bucket = f"s3://lake-{number % 4}/clicks"
            return open_files(bucket, Access(((bucket, aws),)))[0].filesystem

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(open_one, range(threads)))
        assert len(server.assumed) == 1
