"""A queue of SQS that announces data: its address, its messages, and its errors as errors of this package.

Whoever receives a message hides it from others for a while, its visibility timeout. A message that is not deleted in
that time is received again, by the queue's redrive policy at most a few times. Ten messages at a time are received,
deleted and hidden for longer.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from airflow_provider_coordination.aws import ACCESS_CODES, NAME_CREDENTIALS, AwsSettings, Permission, aws_client, prove
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.texts import sentence
from airflow_provider_coordination.sources.connections import ConnectionResolver
from airflow_provider_coordination.sources.items import SourceUnavailableError

log = logging.getLogger(__name__)

BATCH_MESSAGES = 10
"""The maximum number of messages in one call."""
LONGEST_SECONDS = 12 * 3600
"""How long a message can be hidden after it is received, however often that is extended."""
_REGION = re.compile(r"(?:^|\.)sqs(?:-fips)?\.([a-z]{2}(?:-[a-z]+)+-\d)\.|^([a-z]{2}(?:-[a-z]+)+-\d)\.queue\.amazonaws")
_NO_HANDLE = "none"


@dataclass(frozen=True, kw_only=True)
class QueueAddress:
    """Where a queue is, and the connection for it.

    :param url: its URL.
    :param aws_conn_id: the AWS connection; None for the AWS default credential chain.
    :param region_name: the region if the URL names none; None for the region of the connection.
    """

    url: str
    aws_conn_id: str | None
    region_name: str | None = None

    def settings(self, connections: ConnectionResolver) -> AwsSettings:
        """Return the AWS settings for it.

        :raises ConfigurationError: if the connection is not usable.
        """
        return connections.aws(self.aws_conn_id, region_of(self.url) or self.region_name, "sqs")

    def open(self, connections: ConnectionResolver) -> Queue:
        """Return the queue.

        :raises ConfigurationError: if the connection is not usable.
        """
        return Queue(self.url, aws_client(self.settings(connections), "sqs"))


def check_queue_url(url: str) -> str | None:
    """Return why a URL cannot be the URL of a queue, and the remedy; None if it can."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or len(parts.path.strip("/").split("/")) < 2:
        return "must be the URL of a queue, such as https://sqs.eu-west-1.amazonaws.com/123456789012/objects"
    if parts.path.endswith(".fifo"):
        return "must be a standard queue: S3 does not announce objects in a FIFO queue, and no order is needed"
    return None


def check_queue(url: str, field: str = "queue") -> None:
    """Check the URL of a queue that a user gives.

    :param field: the field that has it.
    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    if remedy := check_queue_url(url):
        raise ConfigurationError(f"field {field!r} {remedy}; got {url!r}")


def region_of(url: str) -> str | None:
    """Return the region that a queue's URL names; None if it names none."""
    named = _REGION.search(urlsplit(url).netloc)
    return None if named is None else named[1] or named[2]


@dataclass(frozen=True)
class Message:
    """A message that was received.

    :param id: its id, the same at each time that it is received.
    :param handle: what deletes it, another at each time that it is received.
    :param body: its text.
    """

    id: str
    handle: str
    body: str


class Queue:
    """A queue of SQS. Threads may share it.

    :param url: its URL.
    :param client: a client of boto3 for SQS in the queue's region.
    """

    def __init__(self, url: str, client: Any) -> None:
        self.url = url
        self._client = client

    def receive(self, *, wait_seconds: int, hidden_seconds: int) -> list[Message]:
        """Return up to ten messages, and hide them.

        :param wait_seconds: how long to wait for the first one.
        :param hidden_seconds: how long to hide them.
        :raises ConfigurationError: if the queue does not exist, or access is denied.
        :raises SourceUnavailableError: if trying again later may help.
        """
        with self._errors("receive", "sqs:ReceiveMessage"):
            received = self._client.receive_message(
                QueueUrl=self.url,
                MaxNumberOfMessages=BATCH_MESSAGES,
                WaitTimeSeconds=wait_seconds,
                VisibilityTimeout=hidden_seconds,
            )
        return [
            Message(each["MessageId"], each["ReceiptHandle"], each["Body"]) for each in received.get("Messages", ())
        ]

    def delete(self, handles: Sequence[str]) -> list[str]:
        """Delete messages; return the handles of those that another attempt may delete.

        A handle that is not valid any more is no error: the message is gone, or was received again.

        :raises ConfigurationError: see `receive`.
        :raises SourceUnavailableError: see `receive`.
        """
        left: list[str] = []
        for batch in _batches(handles):
            entries = [{"Id": str(n), "ReceiptHandle": handle} for n, handle in enumerate(batch)]
            with self._errors("delete", "sqs:DeleteMessage"):
                answer = self._client.delete_message_batch(QueueUrl=self.url, Entries=entries)
            left += [batch[int(each["Id"])] for each in answer.get("Failed", ()) if not each.get("SenderFault")]
        return left

    def hide(self, handles: Sequence[str], seconds: int) -> list[str]:
        """Hide received messages for longer; return the handles of those that are not hidden.

        :param seconds: how long from now on.
        :raises ConfigurationError: see `receive`.
        :raises SourceUnavailableError: see `receive`.
        """
        visible: list[str] = []
        for batch in _batches(handles):
            entries = [
                {"Id": str(n), "ReceiptHandle": handle, "VisibilityTimeout": seconds} for n, handle in enumerate(batch)
            ]
            with self._errors("hide", "sqs:ChangeMessageVisibility"):
                answer = self._client.change_message_visibility_batch(QueueUrl=self.url, Entries=entries)
            visible += [batch[int(each["Id"])] for each in answer.get("Failed", ())]
        return visible

    def waiting(self) -> int:
        """Return about how many messages can be received now.

        :raises ConfigurationError: see `receive`.
        :raises SourceUnavailableError: see `receive`.
        """
        return int(self._attributes("ApproximateNumberOfMessages").get("ApproximateNumberOfMessages", 0))

    def permissions(self) -> Iterator[Permission]:
        """Yield the permissions that finding objects by the queue needs; proving them receives and deletes nothing."""
        client, url = self._client, self.url
        ask = partial(client.get_queue_attributes, QueueUrl=url, AttributeNames=["QueueArn", "KmsMasterKeyId"])
        described: dict[str, Any] = {}
        prove(lambda: described.update(ask()["Attributes"]))
        queue = described.get("QueueArn", url)
        yield Permission(action="sqs:GetQueueAttributes", resource=queue, call=ask, is_needed=False)
        # A call that no queue can answer: zero messages, and a handle that no message has.
        receive = partial(client.receive_message, QueueUrl=url, MaxNumberOfMessages=0)
        delete = partial(client.delete_message, QueueUrl=url, ReceiptHandle=_NO_HANDLE)
        hide = partial(client.change_message_visibility, QueueUrl=url, ReceiptHandle=_NO_HANDLE, VisibilityTimeout=0)
        yield Permission(action="sqs:ReceiveMessage", resource=queue, call=receive)
        yield Permission(action="sqs:DeleteMessage", resource=queue, call=delete)
        yield Permission(action="sqs:ChangeMessageVisibility", resource=queue, call=hide, is_needed=False)
        if key := described.get("KmsMasterKeyId"):
            yield Permission(action="kms:Decrypt", resource=key)

    def _attributes(self, *names: str) -> dict[str, str]:
        with self._errors("describe", "sqs:GetQueueAttributes"):
            answer = self._client.get_queue_attributes(QueueUrl=self.url, AttributeNames=list(names))
        return dict(answer.get("Attributes", {}))

    @contextmanager
    def _errors(self, action: str, right: str) -> Iterator[None]:
        """Raise the errors of the enclosed call as errors of this package.

        :param action: what the call does, such as `receive`.
        :param right: the permission that it needs.
        """
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError

        where = f"queue {self.url}: cannot {action} messages"
        try:
            yield
        except ClientError as error:
            code, message = str(error.response.get("Error", {}).get("Code", "")), sentence(error)
            if remedy := _remedy(code, right):
                raise ConfigurationError(f"{where}: {message}; {remedy}") from error
            raise SourceUnavailableError(f"{where}: {message}") from error
        except (NoCredentialsError, PartialCredentialsError) as error:
            raise ConfigurationError(f"{where}: {sentence(error)}; {NAME_CREDENTIALS}") from error
        except BotoCoreError as error:
            raise SourceUnavailableError(
                f"{where}: no valid response: {sentence(error)}; check endpoint_url, region and the network"
            ) from error


MISSING_CODES = ("NonExistentQueue", "QueueDoesNotExist", "InvalidAddress")
UNENCRYPTED_CODES = ("InvalidSecurity",)


def _remedy(code: str, right: str) -> str | None:
    """Return what a user does about an error; None if trying again may help."""
    name = code.rpartition(".")[2]
    if "kms" in code.lower():
        throttled = "throttl" in name.lower()
        return None if throttled else "allow kms:Decrypt on the key of the queue, and check that the key is enabled"
    if name in MISSING_CODES:
        return "check the URL in 'queue', its account, and its region"
    if name in UNENCRYPTED_CODES:
        return "the queue accepts encrypted connections only; give a URL and an endpoint_url that begin with https://"
    if name in ACCESS_CODES:
        return f"check the credentials, and that they and the policy of the queue allow {right} on it"
    return None


def _batches(handles: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(handles), BATCH_MESSAGES):
        yield handles[start : start + BATCH_MESSAGES]
