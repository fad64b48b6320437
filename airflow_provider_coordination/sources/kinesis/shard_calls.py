"""The two frequent calls of a reader, GetShardIterator and GetRecords, at a fraction of their cost in boto3.

Polling a thousand shards takes thousands of calls a second, and most return nothing. botocore's work for each call
costs more than everything else. Here a call is only signed and sent, and its response decoded. Endpoint, credentials,
connections, proxies, certificates and errors are those of a boto3 client.

A response may take no longer than its caller has time. A boto3 client waits as long as bytes arrive, and a server that
sends one byte a second would hold it for days.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from airflow_provider_coordination.sources.kinesis.fast_parsing import page_decoder

CONTENT_TYPE = "application/x-amz-json-1.1"
CHUNK_BYTES = 2**18


class ShardCalls:
    """A client of Kinesis that makes these two calls itself, without retries, and the other calls through boto3.

    It may be shared by threads.

    :param client: of boto3.
    """

    def __init__(self, client: Any) -> None:
        from botocore.auth import _host_from_url  # type: ignore[attr-defined]

        self._client = client
        self._session = client._endpoint.http_session
        self._parser = client._response_parser
        self._url = client.meta.endpoint_url.rstrip("/") + "/"
        self._host = _host_from_url(self._url)  # as it is sent: without the scheme's default port
        self._agent = client.meta.config.user_agent or "airflow-provider-coordination"
        self._decode = page_decoder()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def get_shard_iterator(self, **request: Any) -> Mapping[str, Any]:
        """Return an iterator for a position of a shard, as the boto3 client does."""
        at = request.get("Timestamp")
        if at is not None:
            request["Timestamp"] = round(at.timestamp(), 3)
        return self._parsed("GetShardIterator", self._call("GetShardIterator", request))

    def get_records(self, *, within: float | None = None, **request: Any) -> Mapping[str, Any]:
        """Return one page of a shard's records, under `fast_parsing.COLUMNS`.

        :param within: how many seconds the response may take; None for as long as bytes arrive.
        """
        response = self._call("GetRecords", request, within)
        if self._decode is not None and response["status_code"] == 200:
            try:
                fields = self._decode(response["body"])
            except ValueError:
                pass  # the parser below reports what is wrong with it
            else:
                return {**fields, "ResponseMetadata": {"HTTPHeaders": {"date": response["headers"].get("date")}}}
        return self._parsed("GetRecords", response)

    def _call(self, operation: str, request: Mapping[str, Any], within: float | None = None) -> dict[str, Any]:
        """Make a call; return its response in the form that botocore's parsers accept."""
        from botocore.awsrequest import AWSPreparedRequest, HeadersDict

        until = None if within is None else time.monotonic() + within
        body = json.dumps(request).encode()
        headers: Any = HeadersDict(self._headers(operation, body))
        prepared = AWSPreparedRequest("POST", self._url, headers, body, True)
        # As in botocore: an event handler may return a response in place of the service.
        handled = self._client.meta.events.emit(f"before-send.kinesis.{operation}", request=prepared)
        response = next((given for _, given in handled if given is not None), None)
        if response is None:
            response = self._session.send(prepared)
            content = _content(response, self._url, until)
        else:
            content = response.content
        return {"status_code": response.status_code, "headers": response.headers, "body": content}

    def _parsed(self, operation: str, response: dict[str, Any]) -> Mapping[str, Any]:
        """Parse a response as botocore does.

        :raises ClientError: if it is an error.
        """
        shape = self._client.meta.service_model.operation_model(operation).output_shape
        parsed: dict[str, Any] = self._parser.parse(response, shape)
        if response["status_code"] >= 300:
            raise self._client.exceptions.from_code(parsed.get("Error", {}).get("Code"))(parsed, operation)
        return parsed

    def _headers(self, operation: str, body: bytes) -> dict[str, str]:
        """Return the headers of a request, signed with AWS Signature Version 4."""
        from botocore.exceptions import NoCredentialsError

        credentials = self._client._request_signer._credentials
        if credentials is None:
            raise NoCredentialsError
        frozen = credentials.get_frozen_credentials()
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        signed = {"content-type": CONTENT_TYPE, "host": self._host, "x-amz-date": now}
        if frozen.token:
            signed["x-amz-security-token"] = frozen.token
        signed["x-amz-target"] = f"Kinesis_20131202.{operation}"
        region, names = self._client.meta.region_name, ";".join(signed)
        scope = f"{now[:8]}/{region}/kinesis/aws4_request"
        lines = "".join(f"{name}:{value}\n" for name, value in signed.items())
        canonical = f"POST\n/\n\n{lines}\n{names}\n{hashlib.sha256(body).hexdigest()}"
        text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        signature = hmac.new(
            _signing_key(frozen.secret_key, now[:8], region), text.encode(), hashlib.sha256
        ).hexdigest()
        credential = f"AWS4-HMAC-SHA256 Credential={frozen.access_key}/{scope}"
        return {
            **{name: value for name, value in signed.items() if name != "host"},
            "authorization": f"{credential}, SignedHeaders={names}, Signature={signature}",
            "content-length": str(len(body)),
            "user-agent": self._agent,
        }


@lru_cache(maxsize=16)
def _signing_key(secret_key: str, date: str, region: str) -> bytes:
    key = f"AWS4{secret_key}".encode()
    for part in (date, region, "kinesis", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key


def _content(response: Any, url: str, until: float | None) -> bytes:
    """Return a response's body.

    :param until: when it must be complete, a time of the monotonic clock.
    :raises HTTPClientError: if it is not complete by then, or the connection breaks.
    """
    from botocore.exceptions import ReadTimeoutError, ResponseStreamingError
    from urllib3.exceptions import HTTPError

    if not hasattr(response.raw, "read1"):  # of an older urllib3
        content: bytes = response.content
        return content
    pieces = []
    try:
        while piece := response.raw.read1(CHUNK_BYTES):
            pieces.append(piece)
            if until is not None and time.monotonic() > until:
                response.raw.close()
                raise ReadTimeoutError(endpoint_url=url, error="the response was not complete in time")
    except HTTPError as error:
        raise ResponseStreamingError(error=error) from error
    response.raw.release_conn()
    return b"".join(pieces)
