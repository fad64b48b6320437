"""Answers of AWS without botocore's parsing, where that is most of what a call costs.

botocore lets a handler look at an answer before it parses it. This one takes the long part of an answer's body out, and
hands what it makes of it over beside what botocore makes of the rest. Credentials, signing, endpoints and errors stay
botocore's; and where it does not call the handler, or where an answer is not what it should be, it parses as ever.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class Decoded(NamedTuple):
    """What is made of a body.

    :param rest: the body that botocore parses in its place.
    :param fields: what the answer carries beside what that says.
    """

    rest: bytes
    fields: Mapping[str, Any]


Decode = Callable[[bytes], Decoded]
"""Decodes a body; raises `ValueError` for one that botocore shall parse whole."""


def decode_answers(client: Any, operation: str, decode: Decode) -> bool:
    """Let a client's answers to one operation be decoded; return whether they will be.

    :param client: of boto3; another one is left alone.
    :param operation: such as `GetRecords`.
    :param decode: what decodes them.
    """
    events = getattr(client.meta, "events", None)
    if events is None:
        return False
    # Under any service's name, though the client has but one: such handlers are called before botocore's own, one of
    # which parses whatever S3 answers, to see if it is an error.
    events.register(f"before-parse.*.{operation}", functools.partial(_before_parse, decode))
    return True


def _before_parse(
    decode: Decode,
    response_dict: dict[str, Any],
    customized_response_dict: dict[str, Any],
    **_: Any,
) -> None:
    if response_dict.get("status_code") != 200:
        return  # errors are botocore's, so that it knows them
    try:
        decoded = decode(response_dict["body"])
    except ValueError:
        return  # botocore says what is wrong with it
    response_dict["body"] = decoded.rest
    customized_response_dict.update(decoded.fields)
