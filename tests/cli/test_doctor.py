"""The findings of `doctor` in valid and broken installations."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from airflow_provider_coordination import diagnosis
from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.cli.app import application
from airflow_provider_coordination.cli.commands import CommandContext
from airflow_provider_coordination.coordination.clock import SystemClock
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.sources.kinds import get_kind
from airflow_provider_coordination.stores import StoreSettings, open_store, sql_schema
from airflow_provider_coordination.stores.kinds.dynamodb import DynamoDbSettings
from tests.conftest import REPOSITORY
from tests.supervisor.specs import spec_without
from tests.support.distributions import install
from tests.support.fake_aws import FakeAws, fake_aws
from tests.support.java_home import make_java
from tests.support.spark_home import make_spark_home

SECRET = "very-secret-password"


class WrongClock(SystemClock):
    """The machine's clock, set wrong."""

    def __init__(self, off: timedelta) -> None:
        self.off = off

    def now(self) -> datetime:
        return super().now() + self.off


@dataclass
class DoctorResult:
    """What a run of the command said."""

    exit_code: int
    text: str
    findings: list[dict[str, str]]

    def of(self, topic: str) -> list[tuple[str, str]]:
        """Return the verdicts and texts of a topic."""
        return [(each["status"], each["text"]) for each in self.findings if each["topic"] == topic]

    @property
    def wrong(self) -> list[str]:
        return [each["topic"] for each in self.findings if each["status"] == "error"]

    def remedy(self, topic: str) -> str:
        return next(each["remedy"] for each in self.findings if each["topic"] == topic and each["status"] == "error")


@dataclass
class DoctorCommand:
    """Runs the command in surroundings of its own."""

    environment: dict[str, str]
    off: timedelta = field(default_factory=timedelta)

    def __call__(self, *arguments: str) -> DoctorResult:
        context = CommandContext(clock=WrongClock(self.off), environment=self.environment)
        result = CliRunner().invoke(
            application(), ["doctor", *arguments, "--json"], obj=context, catch_exceptions=False
        )
        findings = [json.loads(line) for line in result.stdout.splitlines()]
        return DoctorResult(result.exit_code, result.stdout + result.stderr, findings)


@pytest.fixture(autouse=True)
def connections(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"conn_type": "spark", "host": "local[2]", "extra": {"deploy-mode": "client"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(given))


@pytest.fixture
def doctor(tmp_path: Path) -> DoctorCommand:
    return DoctorCommand({"JAVA_HOME": make_java(tmp_path / "java", "17.0.15"), "PATH": os.environ["PATH"]})


@pytest.fixture
def valid_arguments(store: CoordinationStore, store_url: str, tmp_path: Path) -> list[str]:
    """Return the arguments that name a store and an output path that are as they have to be."""
    return ["--store", store_url, "--output", str(tmp_path / "lake")]


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeAws]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with fake_aws() as server:
        yield server


def test_healthy_installation_has_no_findings(
    doctor: DoctorCommand, valid_arguments: list[str], tmp_path: Path
) -> None:
    found = doctor(*valid_arguments)
    assert (found.exit_code, found.wrong) == (0, [])
    assert {each["topic"] for each in found.findings if each["status"] == "ok"} == {
        "versions", "java", "connection", "store", "clock", "output",
    }  # fmt: skip
    assert not (tmp_path / "lake").exists()


def test_each_finding_is_a_line_with_its_remedy(doctor: DoctorCommand, store_url: str) -> None:
    context = CommandContext(environment=doctor.environment)
    result = CliRunner().invoke(application(), ["doctor", "--store", store_url], obj=context)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert all(re.match(r"(ok|warning|error|not checked) +(\w+) +\S", line) for line in lines)
    assert any(line.startswith("error        store        store file") and "init-store" in line for line in lines)


def test_missing_connection_does_not_stop_other_checks(doctor: DoctorCommand, tmp_path: Path) -> None:
    found = doctor("--output", str(tmp_path))
    assert found.exit_code == 1
    assert ("error", "connection 'coordination_default' is not defined; create it with type 'coordination'") in (
        found.of("connection")
    )
    assert [status for status, _ in found.of("store")] == ["not checked"]
    assert [status for status, _ in found.of("output")] == ["ok"]


def test_missing_java_is_an_error(doctor: DoctorCommand, valid_arguments: list[str]) -> None:
    doctor.environment = {"PATH": "/nowhere"}
    found = doctor(*valid_arguments)
    assert (found.exit_code, found.wrong) == (1, ["java"])
    assert found.of("java") == [("error", "there is no java on PATH")]
    assert "install Java 17 or newer" in found.remedy("java")


@pytest.mark.parametrize(
    ("version", "text"), [("11.0.2", "Java 11.0.2 in"), ("1.8.0_392", "Java 1.8.0_392 in")], ids=["11", "8"]
)
def test_old_java_is_named(
    doctor: DoctorCommand, valid_arguments: list[str], tmp_path: Path, version: str, text: str
) -> None:
    doctor.environment["JAVA_HOME"] = make_java(tmp_path / "old", version)
    found = doctor(*valid_arguments)
    assert found.wrong == ["java"]
    assert found.of("java")[0][1].startswith(text)


def test_java_home_without_java_is_named(doctor: DoctorCommand, valid_arguments: list[str]) -> None:
    doctor.environment["JAVA_HOME"] = "/nowhere"
    assert doctor(*valid_arguments).of("java") == [("error", "JAVA_HOME is '/nowhere', where there is no bin/java")]


def test_mismatched_pyspark_packages_are_an_error(
    doctor: DoctorCommand, valid_arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, version in (("pyspark", "4.2.0"), ("pyspark_client", "4.1.0")):
        install(tmp_path / "site", name, "none", {}, version=version)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    found = doctor(*valid_arguments)
    assert found.wrong == ["versions"]
    assert "pyspark-client 4.1.0 own the same files" in found.text
    assert "pip install 'pyspark==4.2.0' 'pyspark-client==4.2.0'" in found.remedy("versions")


def test_untested_airflow_is_a_warning(
    doctor: DoctorCommand, valid_arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", "apache_airflow", "none", {}, version="3.9.1")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    found = doctor(*valid_arguments)
    assert (found.exit_code, found.of("versions")[-1][0]) == (0, "ok")
    assert ("warning", "Airflow 3.9.1 is not tested with this package") in found.of("versions")


def test_old_spark_is_an_error(doctor: DoctorCommand, valid_arguments: list[str], tmp_path: Path) -> None:
    doctor.environment["SPARK_HOME"] = str(make_spark_home(tmp_path / "spark", "3.4.4"))
    found = doctor(*valid_arguments)
    assert found.wrong == ["versions"]
    assert "Spark 3.4.4" in found.text


def test_old_schema_is_an_error_and_is_not_changed(
    doctor: DoctorCommand, valid_arguments: list[str], store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_schema, "STEPS", 2 * sql_schema.STEPS)
    found = doctor(*valid_arguments)
    assert found.wrong == ["store"]
    assert "its table has schema version 1, but this package needs 2" in found.text
    assert "init-store" in found.remedy("store")
    with sqlite3.connect(store_url.removeprefix("sqlite:///")) as connection:
        assert connection.execute("SELECT version FROM coordination_partition_schema").fetchall() == [(1,)]


def test_store_without_a_table_is_a_warning(doctor: DoctorCommand, tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "empty.db").close()
    (tmp_path / "empty.db").touch()
    found = doctor("--store", f"sqlite:///{tmp_path}/empty.db")
    assert found.exit_code == 0
    assert ("warning", "its table does not exist yet") in found.of("store")


def test_unreachable_store_is_an_error_without_its_password(
    doctor: DoctorCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis, "RETRY_DEADLINE_SECONDS", 0.1)
    found = doctor("--store", f"postgresql://leases:{SECRET}@127.0.0.1:1/leases")
    assert found.wrong == ["store"]
    assert "Connection refused" in found.text or "connection failed" in found.text
    assert SECRET not in found.text


@pytest.mark.parametrize(("seconds", "where"), [(90, "ahead of"), (-90, "behind")])
def test_clock_90_seconds_off_is_an_error(
    doctor: DoctorCommand, valid_arguments: list[str], seconds: int, where: str
) -> None:
    doctor.off = timedelta(seconds=seconds)
    found = doctor(*valid_arguments)
    assert (found.exit_code, found.wrong) == (1, ["clock"])
    [(_, text)] = found.of("clock")
    assert re.search(
        rf"the clock of this machine is (90\.0|89\.9) s {where} the store's; clocks may differ by 2 s", text
    )
    assert "NTP" in found.remedy("clock")


def test_clock_off_by_half_the_tolerance_is_a_warning(doctor: DoctorCommand, valid_arguments: list[str]) -> None:
    doctor.off = timedelta(seconds=1.5)
    found = doctor(*valid_arguments)
    assert found.exit_code == 0
    assert [status for status, _ in found.of("clock")] == ["warning"]


def test_unwritable_output_path_is_an_error(doctor: DoctorCommand, valid_arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = doctor(*valid_arguments, "--output", f"{tmp_path}/file/lake")
    assert found.wrong == ["output"]
    assert [status for status, _ in found.of("output")] == ["ok", "error"]
    assert "cannot write a file" in found.text


def test_outputs_of_a_spec_are_tried_without_nested_ones(
    doctor: DoctorCommand, valid_arguments: list[str], tmp_path: Path
) -> None:
    spec = {**spec_without("bad_records"), "writes": [{"parquet": {"path": str(tmp_path / "out")}}]}
    (tmp_path / "clicks.json").write_text(json.dumps(spec))
    found = doctor(*valid_arguments[:2], "--spec", str(tmp_path / "clicks.json"))
    assert found.of("output") == [
        ("ok", f"{tmp_path}/out: a file can be written, read, renamed and deleted from this machine")
    ]


def test_bucket_is_reached_by_the_connection_of_its_sink(
    doctor: DoctorCommand, valid_arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = {"region_name": "eu-west-1", "endpoint_url": "http://127.0.0.1:1"}
    given = {"conn_type": "aws", "login": "key", "password": SECRET, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(given))
    writes = [{"parquet": {"path": "s3://lake/clicks", "aws_conn_id": "lake"}}]
    spec = {**spec_without("bad_records"), "writes": writes}
    (tmp_path / "clicks.json").write_text(json.dumps(spec))
    found = doctor(*valid_arguments[:2], "--spec", str(tmp_path / "clicks.json"))
    [(status, text)] = found.of("output")
    assert status == "error" and "127.0.0.1:1" in text
    assert SECRET not in found.text


def test_wrong_spec_is_an_error_that_names_it(
    doctor: DoctorCommand, valid_arguments: list[str], tmp_path: Path
) -> None:
    (tmp_path / "clicks.json").write_text("{}")
    found = doctor(*valid_arguments[:2], "--spec", str(tmp_path / "clicks.json"))
    [(status, text)] = found.of("output")
    assert status == "error" and text.startswith(f"{tmp_path}/clicks.json: ")


def test_each_denied_dynamodb_permission_is_named(doctor: DoctorCommand, aws: FakeAws) -> None:
    aws.denied = {"PutItem", "Scan"}
    found = doctor("--store", f"dynamodb://leases?region=eu-west-1&endpoint_url={aws.url}")
    denied = [text for status, text in found.of("permission") if status == "error"]
    assert denied == [
        "dynamodb:PutItem on table leases is denied",
        "dynamodb:Scan on table leases is denied",
    ]
    assert "allow dynamodb:PutItem in the policy" in found.remedy("permission")
    assert ("ok", "dynamodb:GetItem on table leases") in found.of("permission")
    assert ("not checked", "dynamodb:CreateTable on table leases: no call can check it without side effects") in (
        found.of("permission")
    )
    assert SECRET not in found.text


def test_dynamodb_clock_is_compared_despite_whole_seconds(doctor: DoctorCommand, aws: FakeAws) -> None:
    store = f"dynamodb://leases?region=eu-west-1&endpoint_url={aws.url}"
    assert [status for status, _ in doctor("--store", store).of("clock")] == ["ok"]
    doctor.off = timedelta(seconds=90)
    assert [status for status, _ in doctor("--store", store).of("clock")] == ["error"]


def test_missing_credentials_are_named(doctor: DoctorCommand, aws: FakeAws, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    found = doctor("--store", f"dynamodb://leases?region=eu-west-1&endpoint_url={aws.url}")
    assert "redentials" in found.text
    assert found.exit_code == 1


def test_denied_stream_permission_is_named(
    doctor: DoctorCommand, valid_arguments: list[str], aws: FakeAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"conn_type": "aws", "extra": {"region_name": "eu-west-1", "endpoint_url": aws.url}}
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps(given))
    aws.denied = {"ListShards"}
    found = doctor(*valid_arguments, "--reads", "kinesis:clicks")
    assert [each for each in found.of("permission") if each[0] != "not checked"] == [
        ("ok", "kinesis:DescribeStreamSummary on stream clicks"),
        ("error", "kinesis:ListShards on stream clicks is denied"),
    ]


def test_each_permission_of_a_followed_table_is_tested(
    doctor: DoctorCommand, valid_arguments: list[str], aws: FakeAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"conn_type": "aws", "extra": {"region_name": "eu-west-1", "endpoint_url": aws.url}}
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps(given))
    aws.denied = {"Scan"}
    found = doctor(*valid_arguments, "--reads", "dynamodb:orders", "--reads", "dynamodb_streams:orders")
    of = {text.split()[0]: status for status, text in found.of("permission")}
    assert of.pop("dynamodb:Scan") == "error"
    assert of.keys() == {
        f"dynamodb:{action}"
        for action in ("DescribeTable", "ListStreams", "DescribeStream", "GetShardIterator", "GetRecords")
    }
    assert "allow dynamodb:Scan in the policy" in found.remedy("permission")


@pytest.mark.parametrize(
    ("reads", "text"),
    [("clicks", "--reads must have the form KIND:NAME"), ("kafka:clicks", "'kafka'")],
    ids=["no kind", "unknown kind"],
)
def test_reads_of_an_unknown_kind_is_an_error(
    doctor: DoctorCommand, valid_arguments: list[str], reads: str, text: str
) -> None:
    found = doctor(*valid_arguments, "--reads", reads)
    assert found.wrong == ["permission"]
    assert text in found.text


def test_permissions_match_the_documented_policy(aws: FakeAws) -> None:
    page = (REPOSITORY / "docs" / "dynamodb.md").read_text()
    policy = json.loads(re.findall(r"```json\n(\{\s+\"Version\".*?)```", page, re.DOTALL)[0])
    documented = {
        action
        for statement in policy["Statement"]
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    }
    where = AwsSettings(region="eu-west-1", endpoint_url=aws.url)
    own = DynamoDbSettings(table="leases", aws=where, ttl_seconds=60)
    settings = StoreSettings.of("dynamodb", own, history_days=0)
    needed = settings.loaded_kind.permissions(open_store(settings))
    assert needed is not None
    assert {permission.action for permission in needed[1]} == documented


def test_stream_permissions_match_the_quickstart(aws: FakeAws) -> None:
    where = AwsSettings(region="eu-west-1", endpoint_url=aws.url)
    needed = get_kind("kinesis").permissions("clicks", lambda service: where)
    assert needed is not None
    page = (REPOSITORY / "docs" / "quickstart.md").read_text()
    assert {permission.action for permission in needed[1]} == set(re.findall(r"`(kinesis:\w+)`", page))
