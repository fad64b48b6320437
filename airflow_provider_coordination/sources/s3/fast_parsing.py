"""Listings without botocore's walk through them, which is most of what listing costs.

The objects of a page are taken out of it by the parser of the standard library that botocore also uses, and botocore
gets the page without them; see `fast_answers`. It decodes their keys afterwards as it does with what it parsed.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any
from xml.etree import ElementTree

from airflow_provider_coordination.sources.response_parsing import DecodedBody, decode_responses

_ROOT = re.compile(r"(\{.*\})?ListBucketResult")


def parse_listings_fast(client: Any) -> bool:
    """Let a client's listings carry of each object its `Key`, `Size`, `ETag` and `LastModified` alone; return whether
    they will.

    :param client: of boto3 for S3; another one is left alone.
    """
    return decode_responses(client, "ListObjectsV2", decode_listing)


def decode_listing(body: bytes) -> DecodedBody:
    """Take the objects out of a page.

    :raises ValueError: if it is no page, or one that botocore has to look at.
    """
    root = _parsed(body)
    named = _ROOT.fullmatch(root.tag)
    if named is None:
        raise ValueError(f"no listing: {root.tag}")
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
        raise ValueError("an object that says something twice")
    try:
        key, size, etag, modified = [fields[name] for name in names]
    except KeyError as error:
        raise ValueError(f"an object without its {error}") from None
    return {"Key": key, "Size": int(size), "ETag": etag, "LastModified": datetime.fromisoformat(modified)}
