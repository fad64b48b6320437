"""Listing what is at a path: page by page, so that memory stays flat however many objects there are."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.sources.items import ItemGoneError
from airflow_provider_coordination.sources.s3.errors import BucketNotFoundError, object_errors
from airflow_provider_coordination.sources.s3.fast_parsing import parse_listings_fast
from airflow_provider_coordination.sources.s3.locations import (
    bucket_and_key,
    is_s3,
    object_uri,
    open_filesystem,
    s3_client,
)
from airflow_provider_coordination.sources.s3.objects import Found

PAGE_OBJECTS = 1000
"""S3 gives no more at a time."""
PAGES_AHEAD = 2
"""How many pages are listed while those before are packed and written; as many as are packed together."""

T = TypeVar("T")


@dataclass(frozen=True)
class ListedPage:
    """Some of the objects at a path.

    :param found: the objects; folders, and the empty objects that stand for them, are none.
    :param after: where a listing may go on after this page; empty where only from the beginning.
    """

    found: Sequence[Found]
    after: str = ""


class Listing(Protocol):
    """What lists one path."""

    @property
    def start(self) -> str:
        """What the URI of every object begins with: the path, as objects' URIs are written."""
        ...

    @property
    def base(self) -> str:
        """The folder that names are relative to, with a `/` at its end."""
        ...

    def pages(self, after: str = "") -> Iterator[ListedPage]:
        """Yield page after page.

        :param after: where to go on, as a page of an earlier listing said; empty for everything.
        :raises ConfigurationError: if there is no such bucket or folder, or access to it is denied.
        :raises SourceUnavailableError: if it does not answer.
        """
        ...


def listing_of(path: str, aws: AwsSettings) -> Listing:
    """Return what lists a path.

    :param path: as `check_path` takes it.
    :param aws: how to reach S3.
    :raises ConfigurationError: if nothing reaches such a path.
    """
    if not is_s3(path):
        return FilesystemListing(path)
    client = s3_client(aws)
    parse_listings_fast(client)
    return S3Listing(client, path)


class S3Listing:
    """Lists the objects of a bucket whose keys begin with a prefix, in the order of their keys.

    :param client: of S3.
    :param path: `s3://bucket/prefix`.
    """

    def __init__(self, client: Any, path: str) -> None:
        self._client = client
        self._bucket, self._prefix = bucket_and_key(path)
        self.start = object_uri(self._bucket, self._prefix)
        self.base = self.start[: self.start.rindex("/") + 1]

    def pages(self, after: str = "") -> Iterator[ListedPage]:
        """See `Listing.pages`; `after` is a key."""
        request: dict[str, Any] = {"Bucket": self._bucket, "Prefix": self._prefix, "MaxKeys": PAGE_OBJECTS}
        if after:
            request["StartAfter"] = after
        while True:
            with object_errors(self.start, "list", "s3:ListBucket"):
                answer = self._client.list_objects_v2(**request)
            contents = answer.get("Contents", [])
            if contents:
                yield ListedPage(
                    [
                        Found(
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
            if not answer.get("IsTruncated"):
                return
            request["ContinuationToken"] = answer["NextContinuationToken"]


class FilesystemListing:
    """Lists the files in a folder and in the folders below it, or one file, through pyarrow.

    Folder by folder: what is in one folder is listed at once, as no filesystem of pyarrow does otherwise.

    :param path: an absolute path or a URI.
    :raises ConfigurationError: if pyarrow reaches no such filesystem.
    """

    def __init__(self, path: str) -> None:
        self._filesystem, self._path, self._authority = open_filesystem(path)
        self.start = f"{self._authority}{self._path}"
        self.base = f"{self.start.rstrip('/')}/"

    def pages(self, after: str = "") -> Iterator[ListedPage]:
        """See `Listing.pages`; it always lists everything."""
        from pyarrow import fs

        with object_errors(self.start, "list", "reading"):
            root = self._filesystem.get_file_info(self._path)
        if root.type == fs.FileType.NotFound:
            raise BucketNotFoundError(f"{self.start} does not exist: check 'paths', or create it")
        if root.type == fs.FileType.File:
            self.base = self.start[: self.start.rindex("/") + 1]
            yield ListedPage([self._found(root)])
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
                yield ListedPage([self._found(info) for info in files[start : start + PAGE_OBJECTS]])

    def _found(self, info: Any) -> Found:
        return Found(
            uri=f"{self._authority}{info.path}",
            size=info.size,
            version=file_version(info),
            modified=info.mtime,
        )


def file_version(info: Any) -> str:
    """Return what changes with the content of a file.

    :param info: as a filesystem of pyarrow returns it.
    """
    return f"{info.mtime_ns}-{info.size}"


def ahead(values: Iterator[T]) -> Iterator[T]:
    """Yield values, while a thread asks for the next ones already; there are never more than `PAGES_AHEAD` in hand."""
    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as pool:
        asked = deque(pool.submit(next, values, None) for _ in range(PAGES_AHEAD))
        try:
            while (value := asked.popleft().result()) is not None:
                asked.append(pool.submit(next, values, None))
                yield value
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # who stops here waits for one call at most
