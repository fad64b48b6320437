"""The error of an unavailable bucket names the sink, and blames no batch."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.delivery import Attempt, Prepared, SinkUnavailableError, by_halves
from airflow_provider_coordination.spark.ingestion import IngestionOptions
from airflow_provider_coordination.spark.layout import ITEM_RECORDS
from airflow_provider_coordination.spark.outages import is_outage
from airflow_provider_coordination.spark.parquet_files import read_table, write_table
from airflow_provider_coordination.spark.sinks.iceberg import catalog
from airflow_provider_coordination.spark.sinks.parquet import ParquetSink
from airflow_provider_coordination.spark.storage import check_writable, files_below
from airflow_provider_coordination.spark.transformation import Transformation
from airflow_provider_coordination.spark.transformed_delivery import TransformedDelivery
from tests.integration.test_sink_contract_on_s3 import DatasetInBucket, DeltaInBucket, IcebergInBucket
from tests.support.faulty_s3 import Fault, FaultyS3, Refusal
from tests.support.s3_server import S3Server
from tests.support.sinks import SinkTarget, an_attempt

pytestmark = pytest.mark.share(0.3)


KEY = "arn:aws:kms:eu-west-1:111122223333:key/0a1b"
KEY_DENIED = Refusal(
    "AccessDenied",
    f"User: arn:aws:iam::111122223333:user/ingest is not authorized to perform: kms:GenerateDataKey on resource: {KEY} "
    "because no identity-based policy allows the kms:GenerateDataKey action",
)
MOVED = {
    "redirect": Refusal(
        "PermanentRedirect",
        "The bucket you are attempting to access must be addressed using the specified endpoint.",
        301,
        "<Endpoint>lake.s3.eu-west-1.amazonaws.com</Endpoint><Bucket>lake</Bucket>",
    ),
    "header": Refusal(
        "AuthorizationHeaderMalformed",
        "The authorization header is malformed; the region 'us-east-1' is wrong; expecting 'eu-west-1'",
        400,
        "<Region>eu-west-1</Region>",
        {"x-amz-bucket-region": "eu-west-1"},
    ),
}
KINDS = {"delta": DeltaInBucket, "iceberg": IcebergInBucket, "parquet": DatasetInBucket}
FOR_EVER = 10**6


@pytest.fixture
def network(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyS3]:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with FaultyS3(s3.settings) as network:
        yield network


@pytest.fixture(params=sorted(KINDS))
def target(request: pytest.FixtureRequest, network: FaultyS3, s3_bucket: str, tmp_path: Path) -> SinkTarget:
    if request.param == "iceberg":
        return SinkTarget(IcebergInBucket(s3_bucket, network.settings), tmp_path / "sink")
    return SinkTarget(KINDS[request.param](request.param, s3_bucket, network.settings), tmp_path / "sink")


@pytest.mark.integration
@pytest.mark.parametrize("step", ["prepare", "commit"])
@pytest.mark.parametrize("outage", [Fault.CUT, Fault.FORBIDDEN, Fault.UNAVAILABLE])
def test_refusing_bucket_is_an_outage(
    target: SinkTarget, network: FaultyS3, outage: Fault, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if outage is not Fault.FORBIDDEN:  # nobody waits for that
        monkeypatch.setattr(catalog, "OUTAGE_WAIT_SECONDS", 0)
    target.deliver({"a-1": [1]}, [an_attempt("a-1")])
    sink, attempt = target.sink(), an_attempt("b-1")
    if step == "commit":
        sink.prepare([attempt], target.rows({"b-1": [2]}))
    network.make(".*", outage, FOR_EVER)

    def act() -> None:
        if step == "prepare":
            sink.prepare([attempt], target.rows({"b-1": [2]}))
        else:
            sink.commit([attempt])

    with pytest.raises(Exception) as raised:  # noqa: PT011 - whatever a library has for it
        act()
    assert is_outage(raised.value)


@pytest.mark.integration
@pytest.mark.parametrize("per_batch", [False, True])
@pytest.mark.parametrize(
    ("requests", "is_planned"),
    [("GET .*_landing", False), ("GET .*_landing", True), ("PUT .*part-", False)],
    ids=["opened", "read by tasks", "written by tasks"],
)
def test_delivery_during_an_outage_is_held_and_blames_no_batch(
    spark: SparkSession, s3_bucket: str, network: FaultyS3, requests: str, is_planned: bool, per_batch: bool
) -> None:
    trouble = network.make(requests, Fault.UNAVAILABLE, 0)
    is_away = True

    def transform(records: DataFrame) -> DataFrame:
        trouble.left = FOR_EVER if is_away else 0
        return records.withColumn("n", records.n + 1)

    root = f"s3://{s3_bucket}/lake"
    access = Access(((root, network.settings),))
    attempts = []
    for n in range(8):
        file = f"{root}/_landing/{n}.parquet"
        rows = pa.table({"n": [n], "_batch_id": [f"b-{n}"]})
        attempts.append(an_attempt(f"b-{n}", file=file, file_bytes=write_table(rows, file, access), records=1))
    sink = ParquetSink(name="main", path=root, access=access)
    transformation = Transformation(
        spark,
        [sink],
        layout=ITEM_RECORDS,
        transform=transform,
        options=IngestionOptions(per_batch=per_batch),
        access=access,
    )
    delivery = TransformedDelivery(transformation, [sink], source="clicks", access=access)

    def prepare(some: Sequence[Attempt]) -> Mapping[str, Prepared | Exception]:
        return delivery.prepare(some, ["main"])

    trouble.left = 0 if is_planned else FOR_EVER
    found = {
        batch.batch_id: result if isinstance(result, Exception) else result[batch.batch_id]
        for some, result in by_halves(attempts, prepare, "preparation")
        for batch in some
    }
    assert [type(found[each.batch_id]) for each in attempts] == [SinkUnavailableError] * len(attempts)
    assert len({id(error) for error in found.values()}) == 1
    trouble.left, is_away = 0, False
    prepared = prepare(attempts)
    made = {batch_id: each for batch_id, each in prepared.items() if isinstance(each, Prepared)}
    delivery.commit("main", [replace(each, shared_file=made[each.batch_id].shared_file) for each in attempts])
    files = [file for file in files_below(root, access) if "/_" not in file]
    assert sorted(n for file in files for n in read_table(file, access=access)["n"].to_pylist()) == list(range(1, 9))


@pytest.mark.integration
@pytest.mark.parametrize("outage", [Fault.CUT, Fault.UNAVAILABLE])
def test_unanswered_bucket_at_start_is_no_configuration_error(network: FaultyS3, s3_bucket: str, outage: Fault) -> None:
    root = f"s3://{s3_bucket}/clicks"
    network.make(".*", outage, FOR_EVER)
    with pytest.raises(
        SinkUnavailableError, match=rf"^field 'path' is '{root}', where nothing can be written at present: "
    ):
        check_writable("field 'path'", root, Access(((root, network.settings),)))


@pytest.mark.integration
def test_unresolvable_host_is_no_configuration_error(network: FaultyS3, s3_bucket: str) -> None:
    root, nowhere = f"s3://{s3_bucket}/clicks", replace(network.settings, endpoint_url="http://s3.nowhere.invalid")
    with pytest.raises(SinkUnavailableError, match="where nothing can be written at present: "):
        check_writable("field 'path'", root, Access(((root, nowhere),)))


@pytest.mark.integration
def test_bucket_that_refuses_at_start_is_a_configuration_error(network: FaultyS3, s3_bucket: str) -> None:
    root = f"s3://{s3_bucket}/clicks"
    network.make(".*", Fault.FORBIDDEN, FOR_EVER)
    with pytest.raises(ConfigurationError, match=rf"^field 'path' is '{root}', which cannot be written: "):
        check_writable("field 'path'", root, Access(((root, network.settings),)))


@pytest.mark.integration
@pytest.mark.parametrize(
    ("requests", "action"),
    [
        ("PUT .*_probe", "s3:PutObject"),
        ("GET .*_probe/", "s3:GetObject"),
        ("DELETE .*_probe", "s3:DeleteObject"),
        (r"GET .*list-type=2", "s3:ListBucket"),
    ],
)
def test_missing_permission_at_start_is_named(network: FaultyS3, s3_bucket: str, requests: str, action: str) -> None:
    root = f"s3://{s3_bucket}/clicks"
    network.make(requests, Fault.FORBIDDEN, FOR_EVER)
    said = rf"^field 'path' is '{root}', which cannot be written: .*; allow {action} to the connection's user or role"
    with pytest.raises(ConfigurationError, match=said):
        check_writable("field 'path'", root, Access(((root, network.settings),)))


@pytest.mark.integration
@pytest.mark.parametrize("answer", sorted(MOVED))
def test_bucket_in_another_region_is_named(network: FaultyS3, s3_bucket: str, answer: str) -> None:
    root = f"s3://{s3_bucket}/clicks"
    network.make(".*", Fault.ANSWERED, FOR_EVER, MOVED[answer])
    said = rf"bucket '{s3_bucket}' is in region 'eu-west-1': .*; set 'region_name' of the connection .* to 'eu-west-1'$"
    with pytest.raises(ConfigurationError, match=said):
        check_writable("field 'path'", root, Access(((root, network.settings),)))


@pytest.mark.integration
@pytest.mark.parametrize("requests", ["PUT ", "GET .*_probe/"])
def test_denied_key_is_named_with_the_action(network: FaultyS3, s3_bucket: str, requests: str) -> None:
    root = f"s3://{s3_bucket}/clicks"
    network.make(requests, Fault.ANSWERED, FOR_EVER, KEY_DENIED)
    said = f"KMS key {KEY} is refused: .*; allow kms:GenerateDataKey on it, in the key's policy"
    with pytest.raises(ConfigurationError, match=said):
        check_writable("field 'path'", root, Access(((root, network.settings),)))


@pytest.mark.integration
def test_refused_clock_is_named_with_host_and_both_times(network: FaultyS3, s3_bucket: str) -> None:
    root, there = f"s3://{s3_bucket}/clicks", datetime.now(UTC) - timedelta(minutes=20)
    skewed = Refusal(
        "RequestTimeTooSkewed",
        "The difference between the request time and the current time is too large.",
        headers={"Date": format_datetime(there, usegmt=True)},
    )
    network.make(".*", Fault.ANSWERED, FOR_EVER, skewed)
    message = (
        rf"the clock of {socket.gethostname()} is 12\d\d s ahead of the clock of AWS: "
        rf"there it is {there:%Y-%m-%dT%H:%M:%SZ}"
    )
    with pytest.raises(ConfigurationError, match=rf"{message}.*; set the clock of that machine with NTP$"):
        check_writable("field 'path'", root, Access(((root, network.settings),)))
