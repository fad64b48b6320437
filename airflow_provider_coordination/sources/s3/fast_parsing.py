"""Listings without botocore's parsing, which is the largest cost of listing.

The standard library's parser, which botocore also uses, takes the objects out of a page, and botocore gets the page
without them. botocore decodes their keys afterwards, as it does after its own parsing.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple
from xml.etree import ElementTree

_ROOT = re.compile(r"(\{.*\})?ListBucketResult")


def parse_listings_fast(client: Any) -> bool:
    """Reduce a client's listings to `Key`, `Size`, `ETag` and `LastModified` of each object.

    :param client: of boto3 for S3; nothing is done with another client.
    :returns: whether the client supports it.
    """
    return decode_responses(client, "ListObjectsV2", decode_listing)


def decode_listing(body: bytes) -> DecodedBody:
    """Take the objects out of a page.

    :raises ValueError: if it is not a page, or a page that botocore must parse.
    """
    root = _parsed(body)
    named = _ROOT.fullmatch(root.tag)
    if named is None:
        raise ValueError(f"not a listing: {root.tag}")
    namespace = named[1] or ""
    objects, names = f"{namespace}Contents", [f"{namespace}{name}" for name in ("Key", "Size", "ETag", "LastModified")]
    contents, rest = [], []
    for element in root:
        if element.tag == objects:
            contents.append(_object(element, *names))
        elif element.tag.endswith("Contents"):
            raise ValueError(f"objects of two kinds: {element.tag}")
        else:
            rest.append(element)
    root[:] = rest
    return DecodedBody(ElementTree.tostring(root), {"Contents": contents} if contents else {})


def _parsed(body: bytes) -> ElementTree.Element:
    parser = ElementTree.XMLParser(encoding="utf-8")  # as botocore does
    try:
        parser.feed(body)
        return parser.close()
    except ElementTree.ParseError as error:
        raise ValueError(str(error)) from None


def _object(element: ElementTree.Element, *names: str) -> dict[str, Any]:
    fields = {child.tag: child.text or "" for child in element}
    if len(fields) < len(element) and any(len(element.findall(name)) > 1 for name in names):
        raise ValueError("an object has a field twice")
    try:
        key, size, etag, modified = [fields[name] for name in names]
    except KeyError as error:
        raise ValueError(f"an object has no {error}") from None
    return {"Key": key, "Size": int(size), "ETag": etag, "LastModified": datetime.fromisoformat(modified)}


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
