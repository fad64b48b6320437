"""Listings parsed without botocore equal those parsed by botocore."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote_plus
from xml.sax.saxutils import escape

import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.sources.s3.listing import S3Listing, decode_listing, parse_listings_fast
from airflow_provider_coordination.sources.s3.objects import s3_client
from tests.support.aws_wire import answer_of
from tests.support.depth import examples

SETTINGS = AwsSettings(
    region="eu-west-1",
    endpoint_url="http://127.0.0.1:1",
    access_key_id="AKIA",
    secret_access_key="hush",
    max_attempts=1,
)
NAMESPACE = ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
READ = ("Key", "Size", "ETag", "LastModified")
"""What a scan reads of an object."""


@pytest.fixture(scope="module")
def plain() -> Any:
    return s3_client(SETTINGS)


@pytest.fixture(scope="module")
def fast() -> Any:
    client = s3_client(SETTINGS)
    assert parse_listings_fast(client)
    return client


@contextmanager
def answering(client: Any, body: str, status: int = 200) -> Iterator[None]:
    """Let a client's requests be answered so."""

    def send(request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        return answer_of(request, status, body.encode(), "application/xml")

    client.meta.events.register("before-send", send)
    yield
    client.meta.events.unregister("before-send", send)


def listed(client: Any, body: str, **request: Any) -> dict[str, Any]:
    """What a client makes of such an answer, of its objects what a scan reads."""
    with answering(client, body):
        answer = client.list_objects_v2(Bucket="bucket", **request)
    if "Contents" in answer:
        answer["Contents"] = [{name: each[name] for name in READ if name in each} for each in answer["Contents"]]
    return dict(answer)


def an_object(key: str = "a", **changes: str | None) -> str:
    said = {
        "Key": quote_plus(key, safe="/"),
        "LastModified": "2026-01-01T12:00:00.000Z",
        "ETag": "&quot;d41d8cd98f00b204e9800998ecf8427e&quot;",
        "Size": "434234",
        "StorageClass": "STANDARD",
        **changes,
    }
    return (
        f"<Contents>{''.join(f'<{name}>{text}</{name}>' for name, text in said.items() if text is not None)}</Contents>"
    )


def a_page(*parts: str, namespace: str = NAMESPACE) -> str:
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult{namespace}><Name>bucket</Name><Prefix>a%26</Prefix>'
        f"<IsTruncated>true</IsTruncated><EncodingType>url</EncodingType>{''.join(parts)}<KeyCount>1</KeyCount>"
        "<NextContinuationToken>t &amp; u</NextContinuationToken></ListBucketResult>"
    )


PAGES = {
    "objects": a_page(an_object("a"), an_object("b/c d+e%&<>.txt")),
    "nothing": a_page(),
    "folders between them": a_page(an_object(), "<CommonPrefixes><Prefix>a%2B/</Prefix></CommonPrefixes>", an_object()),
    "no namespace": a_page(an_object(), namespace=""),
    "a prefix for the namespace": a_page(an_object()).replace("<", "<s3:").replace("<s3:/", "</s3:").replace(
        "<s3:?", "<?"
    ).replace("xmlns=", "xmlns:s3="),
    "an order of its own": a_page("<Contents><Size>1</Size><ETag>&#34;e&#34;</ETag><LastModified>2026-01-01T12:00:00Z"
    "</LastModified><Owner><ID>o</ID><Key>not this</Key></Owner><Key>k</Key></Contents>"),
    "several checksums": a_page(
        an_object("a").replace("</Contents>", "<ChecksumAlgorithm>A</ChecksumAlgorithm>" * 2 + "</Contents>")
    ),
    "white space": a_page(" \n", an_object("a").replace("><", ">\n  <"), " \n"),
    "comments and sections": a_page("<!-- - -->", an_object("a", ETag="<!-- x -->&#x22;<![CDATA[<&>]]>&quot;")),
    "an empty name": a_page(an_object("", ETag="")),
    "another zone": a_page(an_object(LastModified="2026-01-01T12:00:00+01:00")),
    "without a size": a_page(an_object(), an_object(Size=None)),
    "without a time": a_page(an_object(LastModified=None)),
    "without a zone": a_page(an_object(LastModified="2026-01-01T12:00:00")),
    "written as in headers": a_page(an_object(LastModified="Thu, 01 Jan 2026 12:00:00 GMT")),
}  # fmt: skip


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_both_parsers_give_the_same_response(plain: Any, fast: Any, page: str) -> None:
    assert listed(fast, page) == listed(plain, page)


def test_undecoded_keys_stay_unchanged(plain: Any, fast: Any) -> None:
    """Who asks for encoded keys gets them."""
    page = a_page(an_object("b/c d"))
    answer = listed(fast, page, EncodingType="url")
    assert answer["Contents"][0]["Key"] == "b/c+d"
    assert answer == listed(plain, page, EncodingType="url")


XML_TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"))


@settings(max_examples=examples(40))
@given(
    st.lists(st.tuples(st.text(min_size=1), st.integers(0, 2**53), XML_TEXT, st.datetimes()), max_size=4),
    st.booleans(),
)
def test_any_object_is_parsed_the_same(plain: Any, fast: Any, objects: list[Any], encoded: bool) -> None:
    """Keys hold whatever they like, as S3 encodes it; and servers that encode nothing hold what XML can."""
    parts = [
        an_object(
            Key=quote_plus(key.encode(errors="replace"), safe="/") if encoded else escape(etag) or "k",
            ETag=escape(etag),
            Size=str(size),
            LastModified=f"{modified.isoformat(timespec='milliseconds')}Z",
        )
        for key, size, etag, modified in objects
    ]
    page = a_page(*parts)
    if not encoded:
        page = page.replace("<EncodingType>url</EncodingType>", "")
    assert listed(fast, page) == listed(plain, page)


def test_objects_use_the_fast_path(fast: Any) -> None:
    decoded = decode_listing(PAGES["objects"].encode())
    assert b"Contents" not in decoded.rest
    assert [each["Key"] for each in decoded.fields["Contents"]] == ["a", "b/c+d%2Be%25%26%3C%3E.txt"]


@pytest.mark.parametrize(
    ("page", "why"),
    [
        (a_page(an_object(Size="many")), "many"),
        (a_page(an_object(LastModified="yesterday")), "yesterday"),
        (a_page(an_object(), f"<x:Contents xmlns:x='y'>{an_object()}</x:Contents>"), "objects of two kinds"),
        (a_page(an_object().replace("</Contents>", "<Key>b</Key></Contents>")), "has a field twice"),
        (a_page(an_object(Size=None)), "has no .*Size"),
        ("<Error><Code>SlowDown</Code></Error>", "not a listing"),
        (a_page()[:-20], "unclosed"),
        ("", "no element"),
    ],
)
def test_other_responses_are_left_to_botocore(page: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        decode_listing(page.encode())


@pytest.mark.parametrize("status", [200, 503])
def test_errors_stay_those_of_botocore(fast: Any, status: int) -> None:
    """S3 also reports errors in responses that begin like successful ones."""
    body = "<Error><Code>SlowDown</Code><Message>reduce your rate</Message></Error>"
    with answering(fast, body, status), pytest.raises(ClientError, match="SlowDown"):
        fast.list_objects_v2(Bucket="bucket")


def test_listing_finds_objects_with_either_client(plain: Any, fast: Any) -> None:
    page = PAGES["objects"].replace("<IsTruncated>true", "<IsTruncated>false")
    pages = []
    for client in (plain, fast):
        with answering(client, page):
            pages.append(list(S3Listing(client, "s3://bucket/").pages()))
    assert pages[0] == pages[1]
    assert [each.uri for each in pages[1][0].found] == ["s3://bucket/a", "s3://bucket/b/c d+e%&<>.txt"]


def test_other_client_is_left_alone() -> None:
    class Client:
        meta = object()

    assert not parse_listings_fast(Client())
