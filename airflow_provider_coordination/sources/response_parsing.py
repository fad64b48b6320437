"""Responses of AWS without botocore's parsing, which costs most of the time of some calls.

botocore lets a handler see a response before it parses it. This handler takes the long part out of the body and
decodes it. botocore parses the rest, and gets the decoded fields beside its own. botocore still does credentials,
signing, endpoints and errors. It parses the whole response if it does not call the handler, or if the body is not as
expected.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class DecodedBody(NamedTuple):
    """A decoded body.

    :param rest: the body that botocore parses instead.
    :param fields: what is added to botocore's response.
    """

    rest: bytes
    fields: Mapping[str, Any]


Decode = Callable[[bytes], DecodedBody]
"""Decodes a body; raises `ValueError` for one that botocore must parse."""


def decode_responses(client: Any, operation: str, decode: Decode) -> bool:
    """Decode a client's responses to one operation with a function; return whether the client supports that.

    :param client: of boto3; nothing is done with another client.
    :param operation: such as `GetRecords`.
    :param decode: decodes the bodies.
    """
    events = getattr(client.meta, "events", None)
    if events is None:
        return False
    # Registered for any service, although the client has only one: such handlers are called before botocore's own.
    # One of those parses every response of S3, to see whether it is an error.
    events.register(f"before-parse.*.{operation}", functools.partial(_before_parse, decode))
    return True


def _before_parse(
    decode: Decode,
    response_dict: dict[str, Any],
    customized_response_dict: dict[str, Any],
    **_: Any,
) -> None:
    if response_dict.get("status_code") != 200:
        return  # botocore handles errors
    try:
        decoded = decode(response_dict["body"])
    except ValueError:
        return  # botocore reports what is wrong with it
    response_dict["body"] = decoded.rest
    customized_response_dict.update(decoded.fields)
