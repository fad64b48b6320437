"""Numbers the calls of one worker to the store, files and source, and injects a fault at one of them.

A run numbers the calls of its *victim*. At one of them the victim is frozen until somebody thaws it, and others go on.
Or the call is one that fails: not made, made without an answer, made twice. A *successor* can be frozen as well, while
the victim goes on. Other workers are counted nowhere and disturbed by nothing.
"""

from __future__ import annotations

import contextvars
import io
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import pyarrow as pa
from pyarrow import fs

from airflow_provider_coordination.coordination.errors import StoreUnavailableError
from airflow_provider_coordination.spark import files, parquet_files, storage
from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.files import Files
from airflow_provider_coordination.spark.s3_objects import BucketFiles
from tests.support.counted_objects import CountedObjects
from tests.support.fleet import Crash
from tests.support.waiting import PATIENCE_SECONDS

T = TypeVar("T")

VICTIM, SUCCESSOR = "victim", "successor"
HOUR_SECONDS = 3600.0
CHANGING = (
    "store.transact",
    "store.acquire",
    "files.move",
    "files.copy",
    "files.link",
    "files.delete",
    "files.close",
    "files.put",
    "table.create_write_transaction",
    "table.compact",
    "catalog.commit_table",
    "sql.commit",
)
acting: ContextVar[str] = ContextVar("acting", default="")
"""Which worker makes a call; the pools of a job copy it to their threads."""


class Strike(StrEnum):
    """The fault at the point."""

    FREEZE = "freeze"
    """The worker stands still until it is thawed, then makes the call."""
    KILLED_BEFORE = "killed before"
    KILLED_AFTER = "killed after"
    RAISED_BEFORE = "raised before"
    RAISED_AFTER = "raised after"
    TWICE = "twice"
    """The call is made twice, as a client does that got no answer; the second answer counts."""
    CLOCK_AHEAD = "clock an hour ahead"
    CLOCK_BACK = "clock an hour back"


class Calls:
    """The calls of one worker.

    :param point: at which of them, from 1, something happens; None for none.
    :param strike: what.
    :param worker: whose calls.
    :param others: the calls of another worker.
    """

    def __init__(
        self,
        point: int | None = None,
        strike: Strike = Strike.FREEZE,
        *,
        worker: str = VICTIM,
        others: Calls | None = None,
    ) -> None:
        self.point = point
        self.strike = strike
        self.worker = worker
        self.others = others
        self.jump: Callable[[float], None] = lambda seconds: None
        """Sets the wall clock of everybody."""
        self.renew: Callable[[], None] = lambda: None
        """What the worker's renewal thread does as soon as both are thawed."""
        self.made: list[str] = []
        self.dead = False
        self.reached = threading.Event()
        self.thawed = threading.Event()
        self._lock = threading.Lock()

    @property
    def struck(self) -> str:
        """The call at the point; empty if the victim did not come there."""
        return self.made[self.point - 1] if self.point and len(self.made) >= self.point else ""

    @property
    def changing(self) -> list[int]:
        """The numbers of the calls that change something."""
        return [number for number, what in enumerate(self.made, 1) if what.startswith(CHANGING)]

    def is_latest(self, what: str) -> bool:
        """Return whether this is the latest call of the worker that makes it, if that one counts."""
        if acting.get() != self.worker:
            return self.others is None or self.others.is_latest(what)
        return bool(self.made) and self.made[-1] == what and not self.dead

    def make(self, what: str, call: Callable[[], T], error: Callable[[], Exception]) -> T:
        """Make a call, whoever it is.

        :param what: the call, for people.
        :param error: what it raises where it fails.
        """
        if acting.get() != self.worker:
            return call() if self.others is None else self.others.make(what, call, error)
        with self._lock:
            if self.dead:
                raise Crash
            self.made.append(what)
            number = len(self.made)
        if number != self.point:
            return call()
        self.reached.set()
        match self.strike:
            case Strike.FREEZE:
                assert self.thawed.wait(PATIENCE_SECONDS), "nobody thaws the victim"
                if not what.startswith("store."):  # a call to the store has the leases' lock
                    contextvars.Context().run(self.renew)
            case Strike.KILLED_BEFORE:
                self._die()
            case Strike.KILLED_AFTER:
                call()
                self._die()
            case Strike.RAISED_BEFORE:
                raise error()
            case Strike.RAISED_AFTER:
                call()
                raise error()
            case Strike.TWICE:
                call()
            case Strike.CLOCK_AHEAD:
                self.jump(HOUR_SECONDS)
            case Strike.CLOCK_BACK:
                self.jump(-HOUR_SECONDS)
        return call()

    def _die(self) -> None:
        self.dead = True
        raise Crash


class FailingCalls(Calls):
    """Calls of which those of one kind fail, whoever makes them.

    :param what: how these calls begin.
    :param times: how many of them fail; None for all.
    :param is_made: whether such a call is made, and only its response is lost.
    :param error: what such a call raises; None for what it usually raises.
    """

    def __init__(
        self, what: str, *, times: int | None = None, is_made: bool = False, error: Exception | None = None
    ) -> None:
        super().__init__()
        self.failed = 0
        self._what = what
        self._times = times
        self._is_made = is_made
        self._error = error

    def make(self, what: str, call: Callable[[], T], error: Callable[[], Exception]) -> T:
        """Make a call, or let it fail; see `Calls.make`."""
        if not what.startswith(self._what) or self.failed == self._times:
            return call()
        self.failed += 1
        if self._is_made:
            call()
        raise self._error or error()


class CountedStore:
    """A store that counts every call."""

    def __init__(self, store: Any, calls: Calls) -> None:
        self._store = store
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not callable(found):
            return found

        def called(*details: Any, **more: Any) -> Any:
            return self._calls.make(
                f"store.{name}", lambda: found(*details, **more), lambda: StoreUnavailableError("connection reset")
            )

        return called


class CountedClient:
    """A client of a service that counts every call."""

    def __init__(self, client: Any, calls: Calls, error: Callable[[], Exception]) -> None:
        self._client = client
        self._calls = calls
        self._error = error

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if not callable(found) or name == "exceptions":
            return found

        def called(*details: Any, **more: Any) -> Any:
            return self._calls.make(f"source.{name}", lambda: found(*details, **more), self._error)

        return called


class CountedFiles(fs.FileSystemHandler):  # type: ignore[misc]
    """Local files that count every primitive, including opening for writing and closing.

    :param calls: the calls.
    :param object_store: whether nothing can be renamed: a move is a copy and a delete, a folder goes object by object,
        and what is written is there once it is closed.
    :param published: called with each path that something was moved or copied to.
    """

    def __init__(self, calls: Calls, *, object_store: bool, published: Callable[[str], None]) -> None:
        self._calls = calls
        self._object_store = object_store
        self._published = published
        self._files = fs.LocalFileSystem()

    def _make(self, what: str, path: str, call: Callable[[], T]) -> T:
        return self._calls.make(f"files.{what} {path}", call, lambda: OSError(5, f"{what} failed"))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CountedFiles)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def get_type_name(self) -> str:
        return "counted"

    def normalize_path(self, path: str) -> str:
        return str(self._files.normalize_path(path))

    def get_file_info(self, paths: list[str]) -> Any:
        return self._make("look", paths[0], lambda: self._files.get_file_info(paths))

    def get_file_info_selector(self, selector: Any) -> Any:
        return self._make("list", selector.base_dir, lambda: self._files.get_file_info(selector))

    def create_dir(self, path: str, recursive: bool) -> None:
        if self._object_store:
            self._files.create_dir(path, recursive=recursive)
        else:
            self._make("create_dir", path, lambda: self._files.create_dir(path, recursive=recursive))

    def delete_dir(self, path: str) -> None:
        if not self._object_store:
            self._make("delete_dir", path, lambda: self._files.delete_dir(path))
            return
        found = self._files.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
        for info in found:
            if info.type == fs.FileType.File:
                self._delete(info.path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        raise AssertionError("nothing of ours empties folders")

    def delete_root_dir_contents(self) -> None:
        raise AssertionError("nothing of ours empties folders")

    def delete_file(self, path: str) -> None:
        if self._object_store:
            self._delete(path)
        else:
            self._make("delete_file", path, lambda: self._files.delete_file(path))

    def _delete(self, path: str) -> None:
        """Delete an object, which is no error if there is none."""
        self._make("delete", path, lambda: Path(path).unlink(missing_ok=True))

    def move(self, src: str, dest: str) -> None:
        if self._object_store:
            self._copy(src, dest)
            self._delete(src)
        else:
            self._make("move", f"{src} {dest}", lambda: self._move(src, dest))

    def _move(self, src: str, dest: str) -> None:
        self._files.move(src, dest)
        self._published(dest)  # within the call: who is killed right after it has published all the same

    def copy_file(self, src: str, dest: str) -> None:
        self._copy(src, dest)

    def _copy(self, src: str, dest: str) -> None:
        def copy() -> None:  # whole, or not at all
            content = Path(src).read_bytes()
            Path(dest).parent.mkdir(parents=True, exist_ok=True)
            partial = Path(f"{dest}.copying")
            partial.write_bytes(content)
            partial.rename(dest)
            self._published(dest)

        self._make("copy", f"{src} {dest}", copy)

    def open_input_stream(self, path: str) -> Any:
        return self._make("open", path, lambda: self._files.open_input_stream(path))

    def open_input_file(self, path: str) -> Any:
        return self._make("open", path, lambda: self._files.open_input_file(path))

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        if not self._object_store:
            return pa.PythonFile(_Output(self, path, self._make("create", path, lambda: Path(path).open("wb"))), "w")
        return pa.PythonFile(_Upload(self, path), "w")

    def _begin_writing(self, path: str) -> None:
        """Count what is written in one go, such as a row group, as one call; it is never made twice."""
        if not self._calls.is_latest(what := f"files.write {path}"):
            self._calls.make(what, lambda: None, lambda: OSError(28, "no space left"))

    def open_append_stream(self, path: str, metadata: Any) -> Any:
        raise AssertionError("nothing of ours appends")


class _Output:
    """A file that is being written."""

    def __init__(self, files: CountedFiles, path: str, content: Any) -> None:
        self._counted, self._path, self._content = files, path, content
        self.closed = False

    def write(self, data: Any) -> int:
        self._counted._begin_writing(self._path)
        return int(self._content.write(data))

    def tell(self) -> int:
        return int(self._content.tell())

    def flush(self) -> None:
        self._content.flush()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._counted._make("close", self._path, self._content.close)


class _Upload(_Output):
    """An object that is there once it is closed."""

    def __init__(self, files: CountedFiles, path: str) -> None:
        super().__init__(files, path, io.BytesIO())

    def close(self) -> None:
        def put() -> None:
            Path(self._path).parent.mkdir(parents=True, exist_ok=True)
            partial = Path(f"{self._path}.copying")
            partial.write_bytes(self._content.getvalue())
            partial.rename(self._path)

        if not self.closed:
            self.closed = True
            self._counted._make("put", self._path, put)


class _LocalFiles(Files):
    """Files that are renamed, as those of this machine."""

    is_local = True


@contextmanager
def counted_files(calls: Calls, *, object_store: str, published: Callable[[str], None]) -> Iterator[None]:
    """Let every file call of the package count.

    :param object_store: see `Case.object_store`.
    """
    opened, remove, link = storage.open_files, files.remove_folder, files.link_file
    filesystem = fs.PyFileSystem(CountedFiles(calls, object_store=bool(object_store), published=published))
    objects = CountedObjects(calls, published)

    def open_counted(uri: str, access: Access) -> tuple[Files, str]:
        _, path = opened(uri, access)
        if object_store == "s3":
            return BucketFiles(objects, lambda: filesystem), path
        return (Files if object_store else _LocalFiles)(filesystem), path

    def remove_counted(path: str) -> None:
        calls.make(f"files.rmdir {path}", lambda: remove(path), lambda: OSError(5, "rmdir failed"))

    def link_counted(path: str, target: str) -> None:
        calls.make(f"files.link {path} {target}", lambda: link(path, target), lambda: OSError(5, "link failed"))

    with ExitStack() as stack:
        for module in (storage, parquet_files):
            stack.enter_context(patch.object(module, "open_files", open_counted))
        stack.enter_context(patch.object(files, "link_file", link_counted))
        stack.enter_context(patch.object(files, "remove_folder", remove_counted))
        stack.enter_context(patch.object(files.os, "fsync", lambda descriptor: None))
        yield
