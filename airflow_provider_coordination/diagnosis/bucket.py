"""Checks of a path in a bucket: the permitted actions, tried out one by one, and the bucket's lifecycle rules."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from airflow_provider_coordination.aws import ACCESS_CODES, AwsSettings, aws_client
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.diagnosis import Finding, error, ok, unchecked, warning
from airflow_provider_coordination.spark.access import Access, bucket_path
from airflow_provider_coordination.stores.redaction import without_likely_secrets

TOPIC = "output"
MAX_ATTEMPTS = 2
CREDENTIALS_CODES = frozenset(
    {"ExpiredToken", "InvalidAccessKeyId", "InvalidClientTokenId", "InvalidToken", "SignatureDoesNotMatch"}
)
"""The errors of S3 for credentials that it does not accept."""
DENIED_CODES = ACCESS_CODES | {"403", "AllAccessDisabled", "Forbidden"}
WRONG_REGION_CODES = frozenset({"301", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"})
WRONG_REGION_CODES |= {"PermanentRedirect", "TemporaryRedirect"}
PRECONDITION_CODES = frozenset({"412", "PreconditionFailed"})
UNSUPPORTED_CODES = frozenset({"405", "501", "MethodNotAllowed", "NotImplemented"})
ABSENT_CODES = frozenset({"404", "NoSuchKey", "NoSuchUpload"})
"""The errors of S3 for a missing object or upload, if the request is permitted."""
NO_RULES_CODES = frozenset({"404", "NoSuchLifecycleConfiguration"})
BUCKET_ACTIONS = ("s3:ListBucket", "s3:ListBucketMultipartUploads")
LIFECYCLE_ACTION = "s3:GetLifecycleConfiguration"
WAITING_FOLDERS = ("_landing", "_staging")
"""The folders below a dataset in which batches wait for delivery."""


def bucket_findings(path: str, access: Access) -> Iterator[Finding]:
    """Yield whether a job can write below a path in a bucket. The objects of the check are deleted.

    :param path: a path on S3.
    :param access: the AWS settings of paths.
    """
    from botocore.exceptions import BotoCoreError

    bucket, _, prefix = (bucket_path(path) or "").partition("/")
    settings = replace(access.of(path) or AwsSettings(), max_attempts=MAX_ATTEMPTS)
    try:
        path_checks = _BucketPath(path, bucket, prefix, aws_client(settings, "s3"))
        yield from path_checks.findings()
    except (BotoCoreError, ConfigurationError) as failure:
        message = without_likely_secrets(" ".join(str(failure).split()))
        yield error(TOPIC, f"{path}: the bucket cannot be reached: {message}", _connection_remedy(settings))


class _BucketPath:
    """A path in a bucket.

    :param path: the path as the user gave it.
    :param bucket: the name of the bucket.
    :param prefix: the prefix of its keys without the last `/`; empty for the whole bucket.
    :param client: a client of S3.
    """

    def __init__(self, path: str, bucket: str, prefix: str, client: Any) -> None:
        self._path = path
        self._bucket = bucket
        self._key_prefix = f"{prefix}/" if prefix else ""
        self._client = client
        self._probe = {"Bucket": bucket, "Key": f"{self._key_prefix}_probe/{secrets.token_hex(8)}"}

    def findings(self) -> Iterator[Finding]:
        """Yield the findings; see `bucket_findings`."""
        listed = self._error_of(
            lambda: self._client.list_objects_v2(Bucket=self._bucket, Prefix=self._key_prefix, MaxKeys=1)
        )
        if (unreachable := self._unreachable(*listed)) is not None:
            yield unreachable
            return
        # List first: without permission to list, S3 reports a missing object as denied.
        client, probe = self._client, self._probe
        put = self._error_of(lambda: client.put_object(**probe, Body=b"check"))
        got = self._error_of(lambda: client.get_object(**probe)["Body"].read())
        conditional = "" if put[0] else self._error_of(lambda: client.put_object(**probe, Body=b"", IfNoneMatch="*"))[0]
        errors = {
            "s3:ListBucket": listed,
            "s3:PutObject": put,
            "s3:GetObject": got,
            "s3:DeleteObject": self._error_of(lambda: client.delete_object(**probe)),
            "s3:AbortMultipartUpload": self._error_of(
                lambda: client.abort_multipart_upload(**probe, UploadId=secrets.token_hex(16))
            ),
            "s3:ListBucketMultipartUploads": self._error_of(
                lambda: client.list_multipart_uploads(Bucket=self._bucket, Prefix=self._key_prefix, MaxUploads=1)
            ),
        }
        yield from self._permissions(errors)
        if not put[0] and conditional not in PRECONDITION_CODES:
            yield warning(
                TOPIC,
                f"{self._path}: the bucket ignores conditional writes (If-None-Match)",
                "use an object store that honours them, or a late request of a previous owner may replace a batch",
            )
        yield from self._lifecycle()

    @staticmethod
    def _error_of(call: Callable[[], object]) -> tuple[str, str]:
        """Make a request. Return the code and the message of its error; both are empty if it succeeds."""
        from botocore.exceptions import ClientError

        try:
            call()
        except ClientError as failure:
            details = failure.response.get("Error", {})
            message = without_likely_secrets(" ".join(str(details.get("Message") or failure).split()))
            return str(details.get("Code") or "unknown"), message
        return "", ""

    def _unreachable(self, code: str, message: str) -> Finding | None:
        bucket = f"{self._path}: bucket {self._bucket!r}"
        if code == "NoSuchBucket":
            return error(TOPIC, f"{bucket} does not exist", "create it, or correct the path or the endpoint")
        if code in WRONG_REGION_CODES:
            return error(
                TOPIC, f"{bucket} is in another region: {message}", "give the AWS connection the bucket's region"
            )
        if code in CREDENTIALS_CODES:
            return error(TOPIC, f"{bucket}: the credentials are refused: {message}", "correct the AWS connection")
        if code and code not in DENIED_CODES:
            return error(TOPIC, f"{bucket} returned {code}: {message}", "check the service and try again")
        return None

    def _permissions(self, errors: Mapping[str, tuple[str, str]]) -> Iterator[Finding]:
        """Yield which actions are allowed.

        :param errors: the code and message of the error of each action.
        """
        denied = {action: message for action, (code, message) in errors.items() if code in DENIED_CODES}
        if "s3:PutObject" in denied and "s3:GetObject" in denied and "s3:ListBucket" in denied:
            del denied["s3:GetObject"]
            yield unchecked(TOPIC, f"{self._path}: s3:GetObject: there is no object to read")
        for action, message in denied.items():
            is_needed = action != "s3:ListBucketMultipartUploads"
            remedy = f"add to the policy of these credentials: {json.dumps(self._statement([action]))}"
            yield (error if is_needed else warning)(TOPIC, f"{self._path}: {action} is denied: {message}", remedy)
        for action, (code, message) in errors.items():
            if code and code not in DENIED_CODES | ABSENT_CODES:
                yield unchecked(TOPIC, f"{self._path}: {action}: the bucket returned {code}: {message}")
        if allowed := [action for action, (code, _) in errors.items() if not code or code in ABSENT_CODES]:
            yield ok(TOPIC, f"{self._path}: {', '.join(allowed)}")

    def _statement(self, actions: Sequence[str]) -> dict[str, Any]:
        """Return the policy statement that allows the actions."""
        arn = f"arn:aws:s3:::{self._bucket}"
        if actions[0] in BUCKET_ACTIONS or actions[0] == LIFECYCLE_ACTION:
            statement: dict[str, Any] = {"Effect": "Allow", "Action": list(actions), "Resource": arn}
            if self._key_prefix and actions[0] in BUCKET_ACTIONS:
                statement["Condition"] = {"StringLike": {"s3:prefix": [f"{self._key_prefix}*"]}}
            return statement
        return {"Effect": "Allow", "Action": list(actions), "Resource": f"{arn}/{self._key_prefix}*"}

    def _lifecycle(self) -> Iterator[Finding]:
        """Yield whether a rule aborts incomplete uploads, and whether a rule deletes batches that wait for delivery."""
        rules: list[Mapping[str, Any]] = []

        def read_rules() -> None:
            rules.extend(self._client.get_bucket_lifecycle_configuration(Bucket=self._bucket).get("Rules", []))

        code, message = self._error_of(read_rules)
        if code in DENIED_CODES | UNSUPPORTED_CODES:
            yield unchecked(TOPIC, f"{self._path}: lifecycle rules: {message or code}", f"allow {LIFECYCLE_ACTION}")
            return
        if code and code not in NO_RULES_CODES:
            yield unchecked(TOPIC, f"{self._path}: lifecycle rules: the bucket returned {code}: {message}")
            return
        enabled = [rule for rule in rules if rule.get("Status") == "Enabled"]
        for rule in enabled:
            if _expires_any(rule, [f"{self._key_prefix}{folder}/" for folder in WAITING_FOLDERS]):
                yield warning(
                    TOPIC,
                    f"{self._path}: lifecycle rule {rule.get('ID', '')!r} deletes batches that wait for delivery below "
                    "'_landing' or '_staging'",
                    "exclude these folders from the rule",
                )
        if any("AbortIncompleteMultipartUpload" in r and self._key_prefix.startswith(_prefix_of(r)) for r in enabled):
            yield ok(TOPIC, f"{self._path}: a lifecycle rule aborts incomplete uploads")
            return
        rule = {
            "ID": "incomplete-uploads",
            "Status": "Enabled",
            "Filter": {"Prefix": self._key_prefix},
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 2},
        }
        yield warning(
            TOPIC,
            f"{self._path}: no lifecycle rule aborts incomplete uploads, whose parts are charged",
            f"add a rule to the bucket: {json.dumps(rule)}",
        )


def _prefix_of(rule: Mapping[str, Any]) -> str:
    """Return the key prefix of a lifecycle rule."""
    rule_filter = rule.get("Filter") or {}
    return str(rule_filter.get("Prefix") or (rule_filter.get("And") or {}).get("Prefix") or rule.get("Prefix") or "")


def _expires_any(rule: Mapping[str, Any], prefixes: Sequence[str]) -> bool:
    """Return whether a rule deletes objects below some of the prefixes. Our objects have no tags."""
    rule_filter = rule.get("Filter") or {}
    if (
        "Tag" in rule_filter
        or (rule_filter.get("And") or {}).get("Tags")
        or not {"Days", "Date"} & set(rule.get("Expiration", ()))
    ):
        return False
    prefix = _prefix_of(rule)
    return any(each.startswith(prefix) or prefix.startswith(each) for each in prefixes)


def _connection_remedy(settings: AwsSettings) -> str:
    return "correct the endpoint" if settings.endpoint_url else "give the AWS connection a region and keys, or a role"
