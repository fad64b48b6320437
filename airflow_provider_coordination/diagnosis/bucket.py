"""What a job may do below a path of a bucket, found out by doing it, and what the bucket's lifecycle rules do there."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from airflow_provider_coordination.aws import ACCESS_CODES, AwsSettings, aws_client
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.diagnosis.findings import Finding, error, ok, unchecked, warning
from airflow_provider_coordination.spark.access import Access, bucket_path
from airflow_provider_coordination.stores.redaction import without_likely_secrets

TOPIC = "output"
TRIES = 2
CREDENTIALS_CODES = frozenset(
    {"ExpiredToken", "InvalidAccessKeyId", "InvalidClientTokenId", "InvalidToken", "SignatureDoesNotMatch"}
)
"""What S3 answers where it does not know who asks."""
DENIED_CODES = ACCESS_CODES | {"403", "AllAccessDisabled", "Forbidden"}
ELSEWHERE_CODES = frozenset({"301", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"})
ELSEWHERE_CODES |= {"PermanentRedirect", "TemporaryRedirect"}
REFUSED_CODES = frozenset({"412", "PreconditionFailed"})
UNKNOWN_CODES = frozenset({"405", "501", "MethodNotAllowed", "NotImplemented"})
ABSENT_CODES = frozenset({"404", "NoSuchKey", "NoSuchUpload"})
"""What S3 answers who is allowed to ask, of what is not there."""
NO_RULES_CODES = frozenset({"404", "NoSuchLifecycleConfiguration"})
BUCKET_ACTIONS = ("s3:ListBucket", "s3:ListBucketMultipartUploads")
LIFECYCLE_ACTION = "s3:GetLifecycleConfiguration"
WAITING_FOLDERS = ("_landing", "_staging")
"""The folders below a dataset in which batches wait until they are delivered."""


def bucket_findings(path: str, access: Access) -> Iterator[Finding]:
    """Yield whether a job can write below a path of a bucket; nothing is left there.

    :param path: on S3.
    :param access: how it is reached.
    """
    from botocore.exceptions import BotoCoreError

    bucket, _, prefix = (bucket_path(path) or "").partition("/")
    settings = replace(access.of(path) or AwsSettings(), max_attempts=TRIES)
    try:
        place = _Place(path, bucket, prefix, aws_client(settings, "s3"))
        yield from place.findings()
    except (BotoCoreError, ConfigurationError) as failure:
        said = without_likely_secrets(" ".join(str(failure).split()))
        yield error(TOPIC, f"{path}: the bucket cannot be reached: {said}", _reach(settings))


class _Place:
    """A path of a bucket.

    :param path: as the user gave it.
    :param bucket: its name.
    :param prefix: what its keys begin with, without the last `/`; empty for the bucket itself.
    :param client: of S3.
    """

    def __init__(self, path: str, bucket: str, prefix: str, client: Any) -> None:
        self._path = path
        self._bucket = bucket
        self._below = f"{prefix}/" if prefix else ""
        self._client = client
        self._probe = {"Bucket": bucket, "Key": f"{self._below}_probe/{secrets.token_hex(8)}"}

    def findings(self) -> Iterator[Finding]:
        """Yield what is found; see `bucket_findings`."""
        listed = self._asked(lambda: self._client.list_objects_v2(Bucket=self._bucket, Prefix=self._below, MaxKeys=1))
        if (unreachable := self._unreachable(*listed)) is not None:
            yield unreachable
            return
        # Listed first: without that right, S3 says "denied" of what is not there.
        client, probe = self._client, self._probe
        put = self._asked(lambda: client.put_object(**probe, Body=b"check"))
        got = self._asked(lambda: client.get_object(**probe)["Body"].read())
        conditional = "" if put[0] else self._asked(lambda: client.put_object(**probe, Body=b"", IfNoneMatch="*"))[0]
        answers = {
            "s3:ListBucket": listed,
            "s3:PutObject": put,
            "s3:GetObject": got,
            "s3:DeleteObject": self._asked(lambda: client.delete_object(**probe)),
            "s3:AbortMultipartUpload": self._asked(
                lambda: client.abort_multipart_upload(**probe, UploadId=secrets.token_hex(16))
            ),
            "s3:ListBucketMultipartUploads": self._asked(
                lambda: client.list_multipart_uploads(Bucket=self._bucket, Prefix=self._below, MaxUploads=1)
            ),
        }
        yield from self._permissions(answers)
        if not put[0] and conditional not in REFUSED_CODES:
            yield warning(
                TOPIC,
                f"{self._path}: the bucket does not keep to conditions of writes (If-None-Match)",
                "use a store that does: here, a request of a former owner that comes late may replace a batch",
            )
        yield from self._lifecycle()

    @staticmethod
    def _asked(call: Callable[[], object]) -> tuple[str, str]:
        """Make a request; return the code of the error that it is answered with, and what that says; empty if none."""
        from botocore.exceptions import ClientError

        try:
            call()
        except ClientError as failure:
            answer = failure.response.get("Error", {})
            said = without_likely_secrets(" ".join(str(answer.get("Message") or failure).split()))
            return str(answer.get("Code") or "unknown"), said
        return "", ""

    def _unreachable(self, code: str, said: str) -> Finding | None:
        what = f"{self._path}: bucket {self._bucket!r}"
        if code == "NoSuchBucket":
            return error(TOPIC, f"{what} does not exist", "create it, or correct the path or the endpoint")
        if code in ELSEWHERE_CODES:
            return error(TOPIC, f"{what} is in another region: {said}", "give the AWS connection the bucket's region")
        if code in CREDENTIALS_CODES:
            return error(TOPIC, f"{what}: the credentials are refused: {said}", "correct those of the AWS connection")
        if code and code not in DENIED_CODES:
            return error(TOPIC, f"{what} answers {code}: {said}", "look at the service, and try again")
        return None

    def _permissions(self, answers: Mapping[str, tuple[str, str]]) -> Iterator[Finding]:
        """Yield which actions are allowed.

        :param answers: by action the error that it was answered with.
        """
        denied = {action: said for action, (code, said) in answers.items() if code in DENIED_CODES}
        if "s3:PutObject" in denied and "s3:GetObject" in denied and "s3:ListBucket" in denied:
            del denied["s3:GetObject"]
            yield unchecked(TOPIC, f"{self._path}: s3:GetObject: there is nothing to read")
        for action, said in denied.items():
            is_needed = action != "s3:ListBucketMultipartUploads"
            remedy = f"add to the policy of these credentials: {json.dumps(self._statement([action]))}"
            yield (error if is_needed else warning)(TOPIC, f"{self._path}: {action} is denied: {said}", remedy)
        for action, (code, said) in answers.items():
            if code and code not in DENIED_CODES | ABSENT_CODES:
                yield unchecked(TOPIC, f"{self._path}: {action}: the bucket answers {code}: {said}")
        if allowed := [action for action, (code, _) in answers.items() if not code or code in ABSENT_CODES]:
            yield ok(TOPIC, f"{self._path}: {', '.join(allowed)}")

    def _statement(self, actions: Sequence[str]) -> dict[str, Any]:
        """Return what a policy has to say for actions to be allowed."""
        arn = f"arn:aws:s3:::{self._bucket}"
        if actions[0] in BUCKET_ACTIONS or actions[0] == LIFECYCLE_ACTION:
            statement: dict[str, Any] = {"Effect": "Allow", "Action": list(actions), "Resource": arn}
            if self._below and actions[0] in BUCKET_ACTIONS:
                statement["Condition"] = {"StringLike": {"s3:prefix": [f"{self._below}*"]}}
            return statement
        return {"Effect": "Allow", "Action": list(actions), "Resource": f"{arn}/{self._below}*"}

    def _lifecycle(self) -> Iterator[Finding]:
        """Yield whether a rule aborts uploads that died, and whether none deletes what waits for delivery."""
        rules: list[Mapping[str, Any]] = []

        def ask() -> None:
            rules.extend(self._client.get_bucket_lifecycle_configuration(Bucket=self._bucket).get("Rules", []))

        code, said = self._asked(ask)
        if code in DENIED_CODES | UNKNOWN_CODES:
            yield unchecked(TOPIC, f"{self._path}: lifecycle rules: {said or code}", f"{LIFECYCLE_ACTION} would tell")
            return
        if code and code not in NO_RULES_CODES:
            yield unchecked(TOPIC, f"{self._path}: lifecycle rules: the bucket answers {code}: {said}")
            return
        enabled = [rule for rule in rules if rule.get("Status") == "Enabled"]
        for rule in enabled:
            if _expires_any(rule, [f"{self._below}{folder}/" for folder in WAITING_FOLDERS]):
                yield warning(
                    TOPIC,
                    f"{self._path}: lifecycle rule {rule.get('ID', '')!r} deletes batches that wait for delivery below "
                    "'_landing' or '_staging'",
                    "let it leave these folders alone",
                )
        if any("AbortIncompleteMultipartUpload" in r and self._below.startswith(_prefix_of(r)) for r in enabled):
            yield ok(TOPIC, f"{self._path}: a lifecycle rule aborts uploads that died")
            return
        rule = {
            "ID": "uploads-that-died",
            "Status": "Enabled",
            "Filter": {"Prefix": self._below},
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 2},
        }
        yield warning(
            TOPIC,
            f"{self._path}: no lifecycle rule aborts uploads that died, whose parts are paid for",
            f"add a rule to the bucket: {json.dumps(rule)}",
        )


def _prefix_of(rule: Mapping[str, Any]) -> str:
    """Return what the keys begin with that a lifecycle rule is about."""
    about = rule.get("Filter") or {}
    return str(about.get("Prefix") or (about.get("And") or {}).get("Prefix") or rule.get("Prefix") or "")


def _expires_any(rule: Mapping[str, Any], places: Sequence[str]) -> bool:
    """Return whether a rule deletes objects below some prefixes; ours have no tags."""
    about = rule.get("Filter") or {}
    if "Tag" in about or (about.get("And") or {}).get("Tags") or not {"Days", "Date"} & set(rule.get("Expiration", ())):
        return False
    prefix = _prefix_of(rule)
    return any(place.startswith(prefix) or prefix.startswith(place) for place in places)


def _reach(settings: AwsSettings) -> str:
    return "correct the endpoint" if settings.endpoint_url else "give the AWS connection a region and keys, or a role"
