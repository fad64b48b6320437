"""A job's access to S3: the AWS settings of its sinks; and refusals of S3 that a user must fix, with their remedies."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_coordination.aws import ACCESS_CODES, AwsSettings, clock_error

ACTIONS = {
    "AbortMultipartUpload": "s3:AbortMultipartUpload",
    "CompleteMultipartUpload": "s3:PutObject",
    "CopyObject": "s3:PutObject and s3:GetObject",
    "CreateMultipartUpload": "s3:PutObject",
    "DeleteObject": "s3:DeleteObject",
    "DeleteObjects": "s3:DeleteObject",
    "GetObject": "s3:GetObject",
    "HeadObject": "s3:GetObject and s3:ListBucket",
    "ListMultipartUploads": "s3:ListBucketMultipartUploads",
    "ListObjectsV2": "s3:ListBucket",
    "PutObject": "s3:PutObject",
    "UploadPart": "s3:PutObject",
    "UploadPartCopy": "s3:PutObject and s3:GetObject",
}
"""The actions that a policy must allow for each operation."""
OPERATION = re.compile(r"(?:calling the|during) (\w+) operation")
"""The operation in error messages of boto3 and pyarrow."""
KMS_ACTION = re.compile(r"\bkms:\w+")
KMS_KEY = re.compile(r"arn:aws[\w-]*:kms:[\w:/-]+")
REGION = re.compile(r"expecting '([a-z0-9-]+)'|bucket is located in '([a-z0-9-]+)'")
REGION_CODES = frozenset({"301", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}) | {
    "PermanentRedirect"
}
DENIED = re.compile(r"access_denied|http status 403", re.IGNORECASE)
"""A refusal in error messages of pyarrow."""


@dataclass(frozen=True)
class Access:
    """How a job reaches its locations on S3. It contains secrets, so it travels only in the settings and to workers.

    :param locations: the location of each sink that is on S3 or has a connection, with the connection's AWS settings;
        None for a sink without a connection.
    """

    locations: tuple[tuple[str, AwsSettings | None], ...] = ()

    def of(self, uri: str) -> AwsSettings | None:
        """Return the AWS settings for a URI: those of the sink whose folder holds it, or of the first in its bucket.

        For a bucket without a sink, they are those of the first sink that has a connection.

        :returns: None for the AWS default credential chain.
        """
        path = bucket_path(uri)
        if path is None:
            return None
        on_s3 = [(root, aws) for location, aws in self.locations if (root := bucket_path(location)) is not None]
        around = [(root, aws) for root, aws in on_s3 if f"{path}/".startswith(f"{root}/")]
        beside = [(root, aws) for root, aws in on_s3 if root.partition("/")[0] == path.partition("/")[0]]
        if around:
            return max(around, key=lambda each: len(each[0]))[1]
        if beside:
            return beside[0][1]
        return next((aws for _, aws in self.locations if aws is not None), None)


def combined_access(*accesses: Access) -> Access:
    """Return the combination of several accesses; the first one that names a location decides."""
    return Access(tuple(dict(reversed([each for access in accesses for each in access.locations])).items()))


DEFAULT_ACCESS = Access()
"""Without a connection."""


def is_s3(uri: str) -> bool:
    """Return whether a URI is on S3."""
    return bucket_path(uri) is not None


def bucket_path(uri: str) -> str | None:
    """Return the bucket and key of a URI on S3; None if it is not on S3."""
    found = re.fullmatch(r"s3[an]?://([^/?]+/?[^?]*)", uri)
    return None if found is None else re.sub("/+", "/", found[1]).rstrip("/")


REFUSED_CODES = ACCESS_CODES | {"403", "AllAccessDisabled", "Forbidden", "InvalidAccessKeyId", "RequestTimeTooSkewed"}


class S3RefusedError(PermissionError):
    """S3 refuses a request, whatever the object.

    :param problem: the error of S3.
    :param remedy: what a user can do.
    """

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}; {remedy}")
        self.problem = problem
        self.remedy = remedy


def refusal(path: str, text: str, response: Mapping[str, Any]) -> S3RefusedError | None:
    """Return the refusal that an error of S3 means, with its remedy; None if it is no refusal that a user must fix.

    :param path: bucket and key.
    :param text: the text of the error of boto3 or pyarrow.
    :param response: the response in boto3's error; empty if there is none.
    """
    error = response.get("Error", {})
    code, bucket = str(error.get("Code", "")), path.partition("/")[0]
    found = REGION.search(text)
    if code in REGION_CODES or found is not None:
        region = _region(response) or (found and (found[1] or found[2]))
        where = f"in region {region!r}" if region else "in another region"
        wanted = repr(region) if region else "the bucket's region"
        return S3RefusedError(
            f"bucket {bucket!r} is {where}: {text}", f"set 'region_name' of the connection in 'aws_conn_id' to {wanted}"
        )
    if code not in REFUSED_CODES and not code.startswith("KMS.") and (code or not DENIED.search(text)):
        return None
    if (clock := clock_error(response)) is not None:
        return S3RefusedError(f"{clock}: {path}: {text}", "set the clock of that machine with NTP")
    action, key = KMS_ACTION.search(text), KMS_KEY.search(text)
    if action is not None or key is not None or code.startswith("KMS."):
        allowed = action[0] if action is not None else "kms:GenerateDataKey and kms:Decrypt"
        of = f"KMS key {key[0]}" if key is not None else f"the KMS key that bucket {bucket!r} encrypts with"
        return S3RefusedError(
            f"{path}: {of} is refused: {text}",
            f"allow {allowed} on it, in the key's policy and in the policy of the connection's user or role, and make "
            "sure that the key is enabled",
        )
    operation = OPERATION.search(text)
    if operation is None or operation[1] not in ACTIONS:
        return None
    return S3RefusedError(
        f"{path}: {text}", f"allow {ACTIONS[operation[1]]} to the connection's user or role, or correct its keys"
    )


def _region(response: Mapping[str, Any]) -> str | None:
    """Return the region that S3 names: in a header, in the error, or in the endpoint of a redirect."""
    headers, error = response.get("ResponseMetadata", {}).get("HTTPHeaders", {}), response.get("Error", {})
    if region := headers.get("x-amz-bucket-region") or error.get("Region"):
        return str(region)
    endpoint = re.search(r"\bs3[.-]([a-z]{2}(?:-[a-z]+)+-\d)\.", str(error.get("Endpoint", "")))
    return endpoint and endpoint[1]
