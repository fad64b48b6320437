"""The findings of `doctor` on buckets, which it leaves unchanged."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.diagnosis import CheckStatus, Finding
from airflow_provider_coordination.diagnosis.bucket import bucket_findings
from airflow_provider_coordination.spark.access import Access
from tests.conftest import REPOSITORY
from tests.support.faulty_s3 import Fault, FaultyS3
from tests.support.s3_server import DENIED, OPEN_BUCKET, S3Server

RULE = {
    "ID": "incomplete-uploads",
    "Status": "Enabled",
    "Filter": {"Prefix": "clicks/"},
    "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 2},
}
REQUESTS = {
    "s3:ListBucket": r"GET /[^/?]+\?list-type",
    "s3:PutObject": r"PUT /[^/?]+/clicks/_probe/",
    "s3:GetObject": r"GET /[^/?]+/clicks/_probe/",
    "s3:DeleteObject": r"DELETE /[^/?]+/clicks/_probe/[^?]+$",
    "s3:AbortMultipartUpload": r"DELETE /[^/?]+/clicks/_probe/.*uploadId",
    "s3:ListBucketMultipartUploads": r"GET /[^/?]+\?uploads",
    "s3:GetLifecycleConfiguration": r"GET /[^/?]+\?lifecycle",
}


@pytest.fixture
def network(s3: S3Server) -> Iterator[FaultyS3]:
    with FaultyS3(s3.settings) as network:
        yield network


def found(bucket: str, aws: AwsSettings, folder: str = "/clicks") -> list[Finding]:
    path = f"s3://{bucket}{folder}"
    return list(bucket_findings(path, Access(((path, aws),))))


def of(status: CheckStatus, findings: list[Finding]) -> list[Finding]:
    return [each for each in findings if each.status is status]


def with_rules(s3: S3Server, bucket: str, *rules: dict[str, Any]) -> None:
    s3.client().put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": list(rules)})


def test_every_operation_of_a_job_is_tried_without_leftovers(s3: S3Server, s3_bucket: str) -> None:
    with_rules(s3, s3_bucket, RULE)
    findings = found(s3_bucket, s3.settings)
    assert {each.status for each in findings} == {CheckStatus.OK}
    assert all(action in findings[0].text for action in REQUESTS if "Lifecycle" not in action)
    assert s3.client().list_objects_v2(Bucket=s3_bucket)["KeyCount"] == 0


def test_probe_files_cannot_be_part_of_a_dataset(network: FaultyS3, s3_bucket: str) -> None:
    found(s3_bucket, network.settings)
    written = [each for each in network.requests if each.startswith("PUT")]
    assert written and all(re.search(r"/clicks/_probe/[0-9a-f]+$", each) for each in written)


@pytest.mark.parametrize("action", [each for each in REQUESTS if "Lifecycle" not in each])
def test_denied_action_is_named_with_the_statement_allowing_it(network: FaultyS3, s3_bucket: str, action: str) -> None:
    network.make(REQUESTS[action], Fault.FORBIDDEN, 9)
    [denied] = [each for each in found(s3_bucket, network.settings) if "is denied" in each.text]
    is_needed = action != "s3:ListBucketMultipartUploads"
    assert f"{action} is denied" in denied.text and (denied.status is CheckStatus.ERROR) == is_needed
    statement = json.loads(denied.remedy.partition(": ")[2])
    assert statement["Action"] == [action]
    assert statement in _apart(_documented(s3_bucket))


def _documented(bucket: str) -> list[dict[str, Any]]:
    page = (REPOSITORY / "docs" / "object_stores.md").read_text().replace(":::lake", f":::{bucket}")
    policies = re.findall(r"```json\n(\{\s+\"Version\".*?)```", page, re.DOTALL)
    return list(json.loads(policies[0])["Statement"])


def _apart(statements: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**each, "Action": [action]} for each in statements for action in each["Action"]]


def test_read_only_role_gets_a_list_of_missing_permissions(s3: S3Server) -> None:
    findings = found(OPEN_BUCKET, s3.settings_of(*DENIED))
    denied = " ".join(each.text for each in of(CheckStatus.ERROR, findings))
    assert "s3:PutObject is denied" in denied and "s3:DeleteObject is denied" in denied
    assert "s3:ListBucket is denied" not in denied and "s3:GetObject is denied" not in denied


def test_missing_bucket_is_the_only_finding(s3: S3Server) -> None:
    [finding] = found("nowhere-at-all", s3.settings)
    assert finding.status is CheckStatus.ERROR and "bucket 'nowhere-at-all' does not exist" in finding.text


def test_unreachable_server_is_the_only_finding(s3_bucket: str) -> None:
    away = AwsSettings(
        region="us-east-1", endpoint_url="http://127.0.0.1:1", access_key_id="key", secret_access_key="very-secret"
    )
    [finding] = found(s3_bucket, away)
    assert finding.status is CheckStatus.ERROR and "cannot be reached" in finding.text
    assert "very-secret" not in finding.text + finding.remedy


def test_unknown_credentials_are_named(s3: S3Server, s3_bucket: str) -> None:
    [finding] = found(s3_bucket, s3.settings_of("unknown", "secret"))
    assert finding.status is CheckStatus.ERROR and "the credentials are refused" in finding.text


# Lifecycle rules


def test_missing_rule_for_dead_uploads_warns_with_the_rule(s3: S3Server, s3_bucket: str) -> None:
    [warning] = of(CheckStatus.WARNING, found(s3_bucket, s3.settings))
    assert "no lifecycle rule aborts incomplete uploads" in warning.text
    rule = json.loads(warning.remedy.partition(": ")[2])
    assert rule == RULE
    with_rules(s3, s3_bucket, rule)
    assert of(CheckStatus.WARNING, found(s3_bucket, s3.settings)) == []


def test_rule_for_another_folder_does_not_count(s3: S3Server, s3_bucket: str) -> None:
    with_rules(s3, s3_bucket, {**RULE, "Filter": {"Prefix": "orders/"}})
    assert len(of(CheckStatus.WARNING, found(s3_bucket, s3.settings))) == 1


def test_role_without_access_to_rules_gets_no_warning(network: FaultyS3, s3_bucket: str) -> None:
    network.make(REQUESTS["s3:GetLifecycleConfiguration"], Fault.FORBIDDEN, 9)
    findings = found(s3_bucket, network.settings)
    assert of(CheckStatus.WARNING, findings) == []
    assert "lifecycle rules" in of(CheckStatus.UNCHECKED, findings)[0].text


def test_rule_that_deletes_landed_files_is_a_warning(s3: S3Server, s3_bucket: str) -> None:
    expiring = {"ID": "old", "Status": "Enabled", "Filter": {"Prefix": "clicks/_landing/"}, "Expiration": {"Days": 7}}
    with_rules(s3, s3_bucket, RULE, expiring)
    [warning] = of(CheckStatus.WARNING, found(s3_bucket, s3.settings))
    assert "lifecycle rule 'old' deletes batches that wait" in warning.text
