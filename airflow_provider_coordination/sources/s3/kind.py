"""Objects of S3, and files, as a kind of source: what a DAG or a spec says of them, and of their format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import UNFINISHED, Partition
from airflow_provider_coordination.coordination.registry import import_attribute
from airflow_provider_coordination.field_hints import Limits, Texts
from airflow_provider_coordination.settings import FieldError, read_settings, text_value
from airflow_provider_coordination.sources.connections import ConnectionResolver
from airflow_provider_coordination.sources.item_kind import ItemKind
from airflow_provider_coordination.sources.items import PartitionProgress
from airflow_provider_coordination.sources.landed import ProgressFormatError, instant_of
from airflow_provider_coordination.sources.peek import Peek
from airflow_provider_coordination.sources.questions import Question, aws_question, place_question
from airflow_provider_coordination.sources.queues import QueueAddress, check_queue_url
from airflow_provider_coordination.sources.reads import AwsReads
from airflow_provider_coordination.sources.s3.objects import ListedObject, check_path, is_s3
from airflow_provider_coordination.sources.s3.selection import glob_regex
from airflow_provider_coordination.sources.source_kind import DatasetName, Finder, Hold, Settings, file_dataset

if TYPE_CHECKING:
    from airflow_provider_coordination.coordination.coordinator import SourceCoordinator


AVRO, CSV, JSON, ORC, PARQUET, TEXT = "avro", "csv", "json", "orc", "parquet", "text"
FORMATS = (AVRO, CSV, JSON, ORC, PARQUET, TEXT)
WITH_COLUMNS = (AVRO, CSV, ORC, PARQUET)
"""The formats whose objects have columns of their own."""
WITH_OWN_COMPRESSION = (AVRO, ORC, PARQUET)
"""The formats that compress parts of an object, and store how."""
AUTO, NONE = "auto", "none"
CODECS: Mapping[str, tuple[str, ...]] = {
    "bzip2": (".bz2",),
    "gzip": (".gz", ".gzip"),
    "lz4": (".lz4",),
    "snappy": (".snappy",),
    "zstd": (".zst", ".zstd"),
}
"""The compressions and their file name suffixes. Snappy and LZ4 have several formats: snappy is Hadoop's, which Spark
writes, and LZ4 is the format of the `lz4` command."""


@dataclass(frozen=True, kw_only=True)
class FormatSettings:
    """The format of objects.

    Without `columns`, text and JSON become one column `data` of bytes, like a Kinesis record, which the job's `schema`
    or transform parses. CSV becomes columns of text, named by the header. Avro, ORC and Parquet have their own columns.

    :param name: `avro`, `csv`, `json` (one JSON object a line), `orc`, `parquet` or `text` (one record a line).
    :param compression: `auto` (by the suffix of the name), `none`, or the name of one. Avro, ORC and Parquet store
        their own.
    :param columns: the columns and their types, as `id BIGINT, name STRING`; None or empty for the format's own. An
        object without one of them cannot be read. Other fields or columns are left
        out.
    :param multi_line: whether objects of JSON may have several lines, or be in an array at the top.
    :param header: whether the first row of each CSV names the columns.
    :param delimiter: between the values of CSV; one character.
    :param quote: around a value of CSV that holds delimiters, ends of lines, or itself twice; empty for none.
    :param escape: before a character of CSV that has no special meaning; empty for none.
    :param null_values: the texts that mean null in CSV, unless they are quoted.
    """

    name: str = JSON
    compression: str = AUTO
    columns: str | None = None
    multi_line: bool = False
    header: bool = True
    delimiter: str = ","
    quote: str = '"'
    escape: str = ""
    null_values: tuple[str, ...] = ("",)

    def check(self) -> None:
        """Check every value.

        :raises FieldError: naming the field, the value and the remedy.
        """
        if self.name not in FORMATS:
            raise _invalid("name", self.name, f"must be one of {', '.join(FORMATS)}")
        if self.compression not in (AUTO, NONE, *CODECS):
            raise _invalid("compression", self.compression, f"must be one of {AUTO}, {NONE}, {', '.join(CODECS)}")
        if self.name in WITH_OWN_COMPRESSION and self.compression not in (AUTO, NONE):
            raise _invalid("compression", self.compression, f"must be {AUTO} for {self.name}, which stores it itself")
        if self.multi_line and self.name != JSON:
            raise _invalid("multi_line", self.multi_line, f"must be left out for {self.name}: it is for {JSON}")
        self._check_columns()
        if self.name == CSV:
            self._check_csv()

    def _check_columns(self) -> None:
        if not self.columns:
            if self.name == CSV and not self.header:
                raise _invalid("columns", self.columns, "must name the columns of a CSV that has no header")
            return
        if self.name == TEXT:
            raise _invalid("columns", self.columns, "must be left out for text, which only has the column 'data'")
        # Imported here, since DAG files import this module and must not load Arrow.
        from airflow_provider_coordination.sources.s3.columns import columns_of

        if self.name == CSV and not columns_of(self.columns).is_flat:
            raise _invalid(
                "columns", self.columns, "must not contain ARRAY, STRUCT or BINARY, which CSV does not support"
            )
        columns_of(self.columns)

    def _check_csv(self) -> None:
        for name in ("delimiter", "quote", "escape"):
            value = getattr(self, name)
            if name != "delimiter" and not value:
                continue
            if len(value) != 1 or not value.isascii() or value in "\r\n\0":
                raise _invalid(name, value, "must be one ASCII character, and not a line break")
        given = [value for value in (self.delimiter, self.quote, self.escape) if value]
        if len(set(given)) < len(given):
            raise _invalid(
                "delimiter", self.delimiter, "must differ from 'quote' and 'escape', and those from each other"
            )


def _invalid(name: str, value: object, remedy: str) -> FieldError:
    return FieldError("FormatSettings", name, f"{remedy}; got {value!r}")


NO_TIME, DAY, YEAR = timedelta(0), timedelta(days=1), timedelta(days=365)
AT_LEAST_ONE = Limits(minimum=1)
RECORDED, DELIVERED = "recorded", "delivered"


@dataclass
class S3Objects(AwsReads):
    """Objects in S3, or files on any filesystem that pyarrow reaches, for the `reads` of operators.

    Each object is delivered once, by its name and version: an object that is uploaded again with other content is
    delivered again.

    :param paths: one location or a list: `s3://bucket/prefix`, `/data/in`, `hdfs://name:8020/in`. An S3 prefix is the
        start of names; end it with `/` for a folder. (templated)
    :param source: the source's name if the operator sets none; by default the name of the only path. (templated)
    :param format: the format of the objects: `"avro"`, `"csv"`, `"json"` (one JSON object a line), `"orc"`,
        `"parquet"` or `"text"`. (templated)
    :param format_options: options of the format; see `FormatSettings`. (templated)
    :param include: globs, one or a list, of which at least one must match; all objects by default. `*.csv` matches the
        file name in any folder, `2026/**/*.csv` matches the whole name below the path. (templated)
    :param exclude: globs, one or a list, of which none may match. (templated)
    :param exclude_suffixes: suffixes of names to leave out. (templated)
    :param hidden: also read what Spark treats as hidden: names and folders that begin with `_` or `.`. A Hive folder
        `_x=1` is never hidden. (templated)
    :param start_time: read only objects modified at this instant or later; an aware datetime or its ISO 8601 text.
        (templated)
    :param end_time: read only objects modified before this instant. (templated)
    :param range: read only objects modified within this duration before a scan begins. (templated)
    :param interval: the minimum time between the beginnings of two scans, however often the task runs. (templated)
    :param count: the maximum number of scans; 1 scans once. (templated)
    :param folder_depth: group objects by the folder at this depth below the path: a partition holds objects of one such
        folder only. (templated)
    :param delete_on_success: delete objects once every sink has acknowledged them. (templated)
    :param forget_after: how long an S3 object is remembered, at least a day; None is forever. Objects that were
        modified longer ago are never read. It counts from when the object was found. (templated)
    :param wait_for: an object, such as `_SUCCESS`, that must be in the same folder before objects are read. This is
        Data Prepper's processing condition, without its check of the object's content. (templated)
    :param wait_delay: how long to wait before the next check for that object. (templated)
    :param wait_retries: the maximum number of further checks; after them the objects are read as they are. (templated)
    :param queue: the URL of an SQS queue whose messages announce the objects, instead of scans. S3, SNS or EventBridge
        sends them. (templated)
    :param acknowledge: when a message is deleted: `"recorded"`, once its objects are in partitions, or `"delivered"`,
        once every sink has them. (templated)
    :param reconcile: with `queue`, also scan the paths this often, for objects that were not announced. (templated)
    :param max_objects: the maximum number of objects in a partition. (templated)
    :param max_bytes: the maximum number of bytes in a partition, as stored; a larger object is alone. (templated)
    :param aws_conn_id: the AWS connection; None for the AWS default credential chain. It is unused if no path is in S3.
        (templated)
    """

    kind: ClassVar[str] = "s3"

    paths: Annotated[Texts, Limits(min_items=1, is_unique=True)]
    _: KW_ONLY
    format: Annotated[str, Limits(one_of=FORMATS)] = JSON
    format_options: Mapping[str, Any] = field(default_factory=dict)
    include: Texts = ()
    exclude: Texts = ()
    exclude_suffixes: Texts = ()
    hidden: bool = False
    start_time: datetime | None = None
    end_time: datetime | None = None
    range: Annotated[timedelta | None, Limits(above=NO_TIME, maximum=100 * YEAR)] = None
    interval: Annotated[timedelta | None, Limits(above=NO_TIME, maximum=YEAR)] = None
    count: Annotated[int | None, AT_LEAST_ONE] = None
    folder_depth: Annotated[int | None, AT_LEAST_ONE] = None
    delete_on_success: bool = False
    forget_after: Annotated[timedelta | None, Limits(minimum=DAY, maximum=100 * YEAR)] = None
    wait_for: str | None = None
    wait_delay: Annotated[timedelta, Limits(above=NO_TIME)] = timedelta(minutes=5)
    wait_retries: Annotated[int, Limits(minimum=0, maximum=1000)] = 10
    queue: str | None = None
    acknowledge: Annotated[str, Limits(one_of=(RECORDED, DELIVERED))] = RECORDED
    reconcile: Annotated[timedelta | None, Limits(above=NO_TIME, maximum=YEAR)] = None
    max_objects: Annotated[int, AT_LEAST_ONE] = 1000
    max_bytes: Annotated[int, AT_LEAST_ONE] = 128 * 1024 * 1024

    @property
    def format_settings(self) -> FormatSettings:
        """The format with its options."""
        what = f"{type(self).__name__}: field 'format_options'"
        return read_settings(FormatSettings, what, {**self.format_options, "name": self.format})

    @property
    @override
    def own_name(self) -> str:
        paths = self.listed("paths")
        if len(paths) != 1:
            raise FieldError(
                type(self).__name__,
                "source",
                f"is missing: the paths {', '.join(map(repr, paths))} need a common source name; give 'source'",
            )
        return paths[0].partition("://")[2].strip("/") or paths[0]

    @property
    @override
    def reads_from(self) -> Mapping[str, Any]:
        names = ("paths", "include", "exclude", "exclude_suffixes")
        return {name: sorted(texts) for name in names if (texts := self.listed(name))}

    @override
    def within(self, start: datetime, end: datetime) -> S3Objects:
        for name in ("start_time", "end_time", "range", "interval", "count", "queue"):
            if text_value(getattr(self, name)) is not None:
                raise ConfigurationError(
                    f"S3Objects: field {name!r} and the operator's 'interval' are both given; remove one of them"
                )
        return replace(self, start_time=start, end_time=end, forget_after=None)

    @override
    def beside(
        self, other: SourceCoordinator, coordinator: SourceCoordinator, start: datetime, end: datetime
    ) -> S3Objects:
        # One of the two sources claims, and so delivers, each object.
        coordinator.share_claims(other.source)
        return self.within(start, end)

    @property
    def queue_address(self) -> QueueAddress | None:
        """Where its queue is; None if it has none."""
        if self.queue is None:
            return None
        return QueueAddress(url=self.queue, aws_conn_id=self.aws_conn_id, region_name=self.region_name)

    @override
    def news_query(self, connections: ConnectionResolver) -> Callable[[], bool] | None:
        if self.queue_address is None or self.reconcile is not None:
            return None
        queue = self.queue_address.open(connections)
        return lambda: queue.waiting() > 0

    @override
    def set_connections(self, connections: ConnectionResolver) -> None:
        if any(map(is_s3, self.paths)):  # files on other filesystems need no AWS connection
            super().set_connections(connections)

    @override
    def check_together(self) -> None:
        for path in self.paths:
            if remedy := check_path(path):
                raise FieldError(type(self).__name__, "paths", f"{remedy}; got {path!r}")
        for name in ("include", "exclude"):
            self._check_globs(name)
        if "" in self.exclude_suffixes:
            raise self.invalid("exclude_suffixes", "must not contain an empty text, which matches every name")
        self._check_window()
        self._check_queue()
        if self.wait_for is not None and "/" in self.wait_for:
            raise self.invalid("wait_for", "must be the name of an object, without its folder")
        try:
            self.format_settings.check()
        except FieldError as error:
            raise error.below(type(self).__name__, "format_options") from None

    def _check_globs(self, name: str) -> None:
        for pattern in getattr(self, name):
            try:
                glob_regex(pattern)
            except ConfigurationError as error:
                raise FieldError(type(self).__name__, name, f"is wrong: {error}") from None

    def _check_window(self) -> None:
        if self.start_time and self.end_time and self.start_time >= self.end_time:
            raise self.invalid("start_time", f"must be before 'end_time', {self.end_time.isoformat()}")
        for name in ("range", "forget_after"):
            if getattr(self, name) is not None and (self.start_time or self.end_time):
                raise self.invalid(name, "must not be given together with 'start_time' or 'end_time'; give one of them")
        for path in self.paths:
            if self.forget_after is not None and not is_s3(path):  # the modification time of a file can be any time
                raise self.invalid("forget_after", f"must be left out: {path!r} is not in S3")

    def _check_queue(self) -> None:
        if self.queue is None:
            for name, value in (("acknowledge", self.acknowledge != RECORDED), ("reconcile", self.reconcile)):
                if value:
                    raise self.invalid(name, "needs 'queue', the URL of the queue that announces objects")
            return
        if remedy := check_queue_url(self.queue):
            raise self.invalid("queue", remedy)
        for path in self.paths:
            if not is_s3(path):
                raise self.invalid("queue", f"must be left out: {path!r} is not in S3")
        for name in ("range", "interval", "count"):
            if getattr(self, name) is not None:
                raise self.invalid(
                    name, "must be left out with 'queue', since it is about scans; 'reconcile' adds scans"
                )
        for name in ("delete_on_success", "forget_after"):
            if getattr(self, name) and self.reconcile is None:
                raise self.invalid(name, "needs 'reconcile' with 'queue': only a scan finds what was not announced")


def _datasets(settings: Settings) -> Iterable[DatasetName]:
    return (file_dataset(path) for path in settings["paths"])


def _left(before: Settings, now: Settings) -> Iterable[str]:
    """Return the buckets, or other filesystems, of which no path is read any more."""
    stores_before, stores = ({file_dataset(path).namespace for path in each.get("paths", ())} for each in (before, now))
    return (f"location {store!r}" for store in sorted(stores_before - stores))


PEEK = "airflow_provider_coordination.sources.s3.peek:peek_objects"


class S3Kind(ItemKind):
    """Objects of S3, whose watermark moves with the scans that find them."""

    watermark_statuses = UNFINISHED

    @override
    def peek(self, service: Any, settings: Settings, peek: Peek, finder: Finder) -> None:
        """Objects are listed, also if a queue announces them: a message that is received is hidden from others."""
        import_attribute(PEEK, "the preview of objects")(S3Objects.from_mapping(settings), peek)

    @override
    def delivered_until(self, partition: Partition) -> datetime | None:
        """No object arrived before it was modified."""
        try:
            left = PartitionProgress.from_mapping(partition.progress).items_left
            return min(
                (ListedObject.from_item(item).modified for item in left), default=datetime.max.replace(tzinfo=UTC)
            )
        except (ProgressFormatError, KeyError, TypeError, ValueError):  # it is stored, so it may be anything
            return None

    @override
    def holds(self, partitions: Sequence[Partition], state: Mapping[str, Any]) -> Iterator[Hold]:
        """What arrived since the last finished scan began."""
        as_of = instant_of(state.get("as_of"))
        unknown = "no scan of S3 has finished" if state else "nothing was scanned; run one"
        yield Hold("the next scan", as_of, "it finds what arrived later" if as_of else unknown)


KIND = S3Kind(
    "s3",
    "airflow_provider_coordination.sources.s3.reader:ObjectReader",
    _datasets,
    reads="airflow_provider_coordination.sources.s3.kind:S3Objects",
    left=_left,
    supplier="airflow_provider_coordination.sources.s3.announcements:finder",
    permissions="airflow_provider_coordination.sources.s3.announcements:permissions",
    claims=lambda item: ListedObject.from_item(item).name,
    size=lambda item: ListedObject.from_item(item).size,
    questions=(
        place_question("objects", "Where the objects are, such as s3://bucket/prefix/", "paths"),
        Question(option="format", text="Format of the objects", field="format", default=JSON),
        aws_question(only_on_s3="objects"),
    ),
)
