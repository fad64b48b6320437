"""Listing the objects at a path, page by page, so that memory does not grow with the number of objects."""

from __future__ import annotations

import functools
import re
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar
from xml.etree import ElementTree

from airflow_provider_coordination.aws import AwsSettings, response_time
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.sources.items import ItemGoneError
from airflow_provider_coordination.sources.s3.objects import (
    BucketNotFoundError,
    ListedObject,
    bucket_and_key,
    file_version,
    is_s3,
    object_errors,
    object_uri,
    open_filesystem,
    s3_client,
)

PAGE_OBJECTS = 1000
"""The maximum number of objects that S3 returns in one response."""
PAGES_AHEAD = 2
"""How many pages are listed ahead while earlier ones are packed and written: as many as are packed together."""

T = TypeVar("T")


@dataclass(frozen=True)
class ListedPage:
    """Some of the objects at a path.

    :param found: the objects, without folders and the empty objects that represent them.
    :param after: where a listing can continue after this page; empty if it can only start from the beginning.
    """

    found: Sequence[ListedObject]
    after: str = ""


class Listing(ABC):
    """A listing of one path."""

    start: str
    """The prefix of every object's URI: the path in the form of those URIs."""
    base: str
    """The folder that names are relative to, with a trailing `/`."""
    as_of: datetime | None = None
    """Every object that arrived before this instant (aware) is listed, by the clock of the storage.

    None before the first page, and if the storage does not show its clock.
    """

    @abstractmethod
    def pages(self, after: str = "") -> Iterator[ListedPage]:
        """Yield page after page.

        :param after: where to continue, the `after` of an earlier page; empty for everything.
        :raises ConfigurationError: if the bucket or folder does not exist, or access is denied.
        :raises SourceUnavailableError: if the storage is unavailable.
        """


def listing_of(path: str, aws: AwsSettings) -> Listing:
    """Return the listing of a path.

    :param path: as `check_path` accepts it.
    :param aws: the settings for S3.
    :raises ConfigurationError: if the kind of path is not supported.
    """
    if not is_s3(path):
        return FilesystemListing(path)
    client = s3_client(aws)
    parse_listings_fast(client)
    return S3Listing(client, path)


class S3Listing(Listing):
    """Lists the objects of a bucket whose keys begin with a prefix, in the order of their keys.

    :param client: of S3.
    :param path: `s3://bucket/prefix`.
    """

    def __init__(self, client: Any, path: str) -> None:
        self._client = client
        self._bucket, self._prefix = bucket_and_key(path)
        self.start = object_uri(self._bucket, self._prefix)
        self.base = self.start[: self.start.rindex("/") + 1]

    @override
    def pages(self, after: str = "") -> Iterator[ListedPage]:
        request: dict[str, Any] = {"Bucket": self._bucket, "Prefix": self._prefix, "MaxKeys": PAGE_OBJECTS}
        if after:
            request["StartAfter"] = after
        while True:
            requested_at = time.monotonic()
            with object_errors(self.start, "list", "s3:ListBucket"):
                response = self._client.list_objects_v2(**request)
            if self.as_of is None and (answered_at := response_time(response)) is not None:
                self.as_of = answered_at - timedelta(seconds=time.monotonic() - requested_at)
            contents = response.get("Contents", [])
            if contents:
                yield ListedPage(
                    [
                        ListedObject(
                            uri=object_uri(self._bucket, each["Key"]),
                            size=each["Size"],
                            version=each["ETag"],
                            modified=each["LastModified"],
                        )
                        for each in contents
                        if not each["Key"].endswith("/")
                    ],
                    contents[-1]["Key"],
                )
            if not response.get("IsTruncated"):
                return
            request["ContinuationToken"] = response["NextContinuationToken"]


class FilesystemListing(Listing):
    """Lists the files in a folder and in the folders below it, or one file, through pyarrow.

    The files of one folder are listed at once, since pyarrow's filesystems cannot do it in parts.

    :param path: an absolute path or a URI.
    :raises ConfigurationError: if pyarrow does not support the filesystem.
    """

    def __init__(self, path: str) -> None:
        self._filesystem, self._path, self._authority = open_filesystem(path)
        self.start = f"{self._authority}{self._path}"
        self.base = f"{self.start.rstrip('/')}/"

    @override
    def pages(self, after: str = "") -> Iterator[ListedPage]:
        from pyarrow import fs

        with object_errors(self.start, "list", "reading"):
            root = self._filesystem.get_file_info(self._path)
        if root.type == fs.FileType.NotFound:
            raise BucketNotFoundError(f"{self.start} does not exist; check 'paths', or create it")
        if root.type == fs.FileType.File:
            self.base = self.start[: self.start.rindex("/") + 1]
            yield ListedPage([self._listed(root)])
            return
        folders = [root.path]
        while folders:
            folder = folders.pop()
            try:
                with object_errors(folder, "list", "reading"):
                    infos = self._filesystem.get_file_info(fs.FileSelector(folder))
            except ItemGoneError:  # removed since the folder above it was listed
                continue
            infos.sort(key=lambda info: info.path)
            folders += [info.path for info in reversed(infos) if info.type == fs.FileType.Directory]
            files = [info for info in infos if info.type == fs.FileType.File]
            for start in range(0, len(files), PAGE_OBJECTS):
                yield ListedPage([self._listed(info) for info in files[start : start + PAGE_OBJECTS]])

    def _listed(self, info: Any) -> ListedObject:
        return ListedObject(
            uri=f"{self._authority}{info.path}",
            size=info.size,
            version=file_version(info),
            modified=info.mtime,
        )


def ahead(values: Iterator[T]) -> Iterator[T]:
    """Yield values while a thread already fetches the next ones; at most `PAGES_AHEAD` are held at a time."""
    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as pool:
        requested = deque(pool.submit(next, values, None) for _ in range(PAGES_AHEAD))
        try:
            while (value := requested.popleft().result()) is not None:
                requested.append(pool.submit(next, values, None))
                yield value
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # a caller that stops early waits for one call at most


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
