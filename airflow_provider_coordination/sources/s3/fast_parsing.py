"""Listings without botocore's parsing, which is the largest cost of listing.

The standard library's parser, which botocore also uses, takes the objects out of a page, and botocore gets the page
without them; see `response_parsing`. botocore decodes their keys afterwards, as it does after its own parsing.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any
from xml.etree import ElementTree

from airflow_provider_coordination.sources.response_parsing import DecodedBody, decode_responses

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
