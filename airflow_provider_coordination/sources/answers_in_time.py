"""Answers of AWS that may take no longer than somebody has time.

A client of boto3 waits for as long as bytes come, however slowly: a server that sends one a second would hold its
reader for days. Where a time is set, an answer that is not whole by then counts as one that never came.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

CHUNK_BYTES = 2**18

_until: ContextVar[float | None] = ContextVar("_until", default=None)


@contextmanager
def answered_within(seconds: float | None) -> Iterator[None]:
    """Let answers to the enclosed calls take so long altogether; None is for as long as bytes come.

    It counts for clients of `give_up_late_answers`.
    """
    token = _until.set(None if seconds is None else time.monotonic() + seconds)
    try:
        yield
    finally:
        _until.reset(token)


def give_up_late_answers(client: Any) -> None:
    """Let a client's answers keep to `answered_within`.

    :param client: of boto3; another one is left alone.
    """
    endpoint = getattr(client, "_endpoint", None)
    if endpoint is not None:
        endpoint.http_session = _InTime(endpoint.http_session)


class _InTime:
    """A session of botocore whose answers are read piece by piece.

    :param session: the one that asks.
    """

    def __init__(self, session: Any) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def send(self, request: Any) -> Any:
        """Send a request; return its answer, whole.

        :raises HTTPClientError: if there is none in time, as for any other that does not come.
        """
        from botocore.awsrequest import AWSResponse
        from botocore.exceptions import ReadTimeoutError, ResponseStreamingError
        from urllib3.exceptions import HTTPError

        until = _until.get()
        if until is None or request.stream_output:
            return self._session.send(request)
        request.stream_output = True  # so that the session leaves the body to its caller
        answer = self._session.send(request)
        if not hasattr(answer.raw, "read1"):  # of an older urllib3
            return answer
        pieces = []
        try:
            while piece := answer.raw.read1(CHUNK_BYTES):
                pieces.append(piece)
                if time.monotonic() > until:
                    answer.raw.close()
                    raise ReadTimeoutError(endpoint_url=request.url, error="it was not whole in time")
        except HTTPError as error:
            raise ResponseStreamingError(error=error) from error
        answer.raw.release_conn()
        return AWSResponse(answer.url, answer.status_code, answer.headers, _Body(b"".join(pieces)))


class _Body:
    """A body that is there, as botocore reads it."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self, **_: Any) -> Iterator[bytes]:
        yield self._body
