"""A standard queue of SQS in memory, as a client of boto3 shows it, by AWS's documentation and a clock of the tests.

What a server on this machine hides from a test is visible here: a message may be received twice at once, in any order,
and a receipt may be outdated. `test_s3_queue.py` holds it against a server.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from airflow_provider_coordination.coordination.clock import Clock

LONGEST_SECONDS = 12 * 3600


@dataclass
class ModelMessage:
    """A message in the queue.

    :param visible_at: from when it can be received, in seconds of the clock.
    """

    id: str
    body: str
    visible_at: float = 0.0
    receipts: int = 0
    received_at: float = 0.0

    @property
    def handle(self) -> str:
        return f"{self.id}/{self.receipts}"


class SqsModel:
    """A client of one queue.

    :param clock: the source of time.
    :param chosen: decides about order and double receipts; None for neither.
    :param max_receipts: after this number of receipts, a message moves to `dead`; None for never.
    """

    def __init__(self, clock: Clock, chosen: random.Random | None = None, max_receipts: int | None = None) -> None:
        self.messages: dict[str, ModelMessage] = {}
        self.dead: list[ModelMessage] = []
        self.calls: list[str] = []
        self.before: Callable[[str], object] = lambda call: None
        self.after: Callable[[str], object] = lambda call: None
        self.refused: str | None = None
        self._clock = clock
        self._chosen = chosen
        self._max_receipts = max_receipts
        self._sent = 0

    def send(self, *bodies: str) -> None:
        """Send messages."""
        for body in bodies:
            self._sent += 1
            self.messages[f"m{self._sent}"] = ModelMessage(f"m{self._sent}", body)

    @property
    def visible(self) -> list[ModelMessage]:
        """The messages that can be received now."""
        return [message for message in self.messages.values() if message.visible_at <= self._now]

    @property
    def _now(self) -> float:
        return self._clock.now().timestamp()

    def receive_message(self, **request: Any) -> Mapping[str, Any]:
        return self._make("receive", lambda: self._receive(request))

    def delete_message_batch(self, **request: Any) -> Mapping[str, Any]:
        return self._make("delete", lambda: self._delete(request["Entries"]))

    def change_message_visibility_batch(self, **request: Any) -> Mapping[str, Any]:
        return self._make("hide", lambda: self._hide(request["Entries"]))

    def get_queue_attributes(self, **request: Any) -> Mapping[str, Any]:
        waiting = {"ApproximateNumberOfMessages": str(len(self.visible))}
        return self._make("describe", lambda: {"Attributes": waiting})

    def _make(self, call: str, answer: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        self.calls.append(call)
        self.before(call)
        if self.refused is not None:
            raise ClientError({"Error": {"Code": self.refused, "Message": "refused."}}, call)
        answered = answer()
        self.after(call)
        return answered

    def _receive(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        assert 0 <= request["WaitTimeSeconds"] <= 20 and 1 <= request["MaxNumberOfMessages"] <= 10
        for message in self.visible:
            if self._max_receipts is not None and message.receipts >= self._max_receipts:
                self.dead.append(self.messages.pop(message.id))
        visible = self.visible
        if self._chosen is not None:
            self._chosen.shuffle(visible)
        taken = visible[: request["MaxNumberOfMessages"]]
        received = []
        for message in taken:
            message.receipts += 1
            twice = self._chosen is not None and self._chosen.random() < 0.1
            message.visible_at = self._now + (0 if twice else request["VisibilityTimeout"])
            message.received_at = self._now
            received.append({"MessageId": message.id, "ReceiptHandle": message.handle, "Body": message.body})
        return {"Messages": received} if received else {}

    def _delete(self, entries: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """An outdated handle is accepted, and deletes nothing."""
        assert 1 <= len(entries) <= 10
        for entry in entries:
            if (message := self._found(entry)) is not None:
                del self.messages[message.id]
        return {"Successful": [{"Id": entry["Id"]} for entry in entries]}

    def _hide(self, entries: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        assert 1 <= len(entries) <= 10
        failed = []
        for entry in entries:
            message, until = self._found(entry), self._now + entry["VisibilityTimeout"]
            if message is None or message.visible_at <= self._now or until > message.received_at + LONGEST_SECONDS:
                failed.append({"Id": entry["Id"], "SenderFault": True, "Code": "InvalidParameterValue"})
            else:
                message.visible_at = until
        return {"Failed": failed}

    def _found(self, entry: Mapping[str, Any]) -> ModelMessage | None:
        message = self.messages.get(entry["ReceiptHandle"].partition("/")[0])
        return message if message is not None and message.handle == entry["ReceiptHandle"] else None
