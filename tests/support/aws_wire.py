"""Records the requests of a boto3 client, and injects faults between it and its service."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from io import BytesIO
from typing import Any

from botocore.awsrequest import AWSPreparedRequest, AWSResponse, HeadersDict
from botocore.exceptions import ReadTimeoutError
from botocore.httpsession import URLLib3Session

Answer = Callable[[AWSPreparedRequest], AWSResponse | None]


class AwsWire:
    """The requests of one client, in the order in which they were sent.

    Faults of an operation happen to its next requests, one after the other.

    :param client: a client of a service that speaks JSON.
    """

    def __init__(self, client: Any) -> None:
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self._plans: dict[str, list[Answer]] = defaultdict(list)
        self._client = client
        client.meta.events.register("before-send", self._send)

    def disconnect(self) -> None:
        """Let the client send its next requests to the service."""
        self._client.meta.events.unregister("before-send", self._send)

    @property
    def operations(self) -> list[str]:
        return [operation for operation, _ in self.requests]

    @property
    def counts(self) -> dict[str, int]:
        return dict(Counter(self.operations))

    def refuse(
        self,
        operation: str,
        code: str,
        *,
        times: int = 1,
        status: int = 400,
        after: Callable[[], object] | None = None,
        **body: Any,
    ) -> None:
        """Answer with an error, perhaps after doing something; the request does not reach the service."""
        content = json.dumps({"__type": code, "message": f"the wire says {code}", **body}).encode()

        def answer(request: AWSPreparedRequest) -> AWSResponse:
            if after is not None:
                after()
            return answer_of(request, status, content)

        self._plans[operation] += [answer] * times

    def answer(self, operation: str, body: dict[str, Any], *, times: int = 1) -> None:
        """Answer in the service's place."""
        content = json.dumps(body).encode()
        self._plans[operation] += [lambda request: answer_of(request, 200, content)] * times

    def lose_the_answer(self, operation: str, *, times: int = 1) -> None:
        """Let the service do it, and keep its answer."""

        def lose(request: AWSPreparedRequest) -> None:
            URLLib3Session().send(request)
            raise ReadTimeoutError(endpoint_url=request.url)

        self._plans[operation] += [lose] * times

    def before(self, operation: str, act: Callable[[], object]) -> None:
        """Do something just before the next request."""

        def first(request: AWSPreparedRequest) -> None:
            act()

        self._plans[operation].append(first)

    def _send(self, request: AWSPreparedRequest, event_name: str, **_: Any) -> AWSResponse | None:
        operation = event_name.rpartition(".")[2]
        self.requests.append((operation, json.loads(request.body)))
        plan = self._plans[operation]
        return plan.pop(0)(request) if plan else None


class _Raw(BytesIO):
    def stream(self, **_: Any) -> Any:
        yield self.read()


def answer_of(
    request: AWSPreparedRequest, status: int, content: bytes, kind: str = "application/x-amz-json-1.0"
) -> AWSResponse:
    """The answer to a request, as if the service had sent it."""
    headers = HeadersDict({"Content-Type": kind})
    return AWSResponse(request.url, status, headers, _Raw(content))
