"""What is read of the streams of DynamoDB tables: what a DAG or a spec says, and what shard sync and jobs use."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.field_hints import Limits, ParsedBy, Texts
from airflow_provider_coordination.settings import CONNECTED, FieldError, text_value
from airflow_provider_coordination.sources.connections import ConnectionResolver
from airflow_provider_coordination.sources.dynamodb.kind import DynamoDBTable
from airflow_provider_coordination.sources.dynamodb_streams import MAX_RECORDS_PER_READ, VIEWS
from airflow_provider_coordination.sources.kinesis.progress import LINEAGE_KIND
from airflow_provider_coordination.sources.kinesis.settings import ShardReads
from airflow_provider_coordination.sources.kinesis.stream_names import arn_parts, is_arn, region_of, stream_name

if TYPE_CHECKING:
    from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
    from airflow_provider_coordination.coordination.supplier import Page
    from airflow_provider_coordination.sources.dynamodb_streams.client import StreamsClient
    from airflow_provider_coordination.sources.kinesis.shards import StreamDescription

TABLE = re.compile(r"[A-Za-z0-9_.-]{3,255}")
ITEMS_FIRST = "items_first"
"""The name in a location that says that a table's items are read before its changes."""
EXAMPLE_ARN = "arn:aws:dynamodb:eu-west-1:123456789012:table/orders"


def tables_value(value: Any) -> list[str]:
    """Return the names of tables and the ARNs of tables and streams, given as one text or a list.

    :raises FieldError: if one is neither, or two cannot be read by one source.
    """
    texts = [str(table) for table in ([value] if isinstance(value, str) else value)]
    for text in texts:
        parts = arn_parts(text)
        if (is_arn(text) and (parts is None or ":dynamodb:" not in text)) or not TABLE.fullmatch(stream_name(text)):
            raise _wrong(
                f"has {text!r}; give the name of a table, of 3 to 255 letters, digits, '_', '.' and '-', or the ARN of "
                f"a table or of its stream, such as {EXAMPLE_ARN}"
            )
    names = [stream_name(text) for text in texts]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise _wrong(f"names table {twice[0]!r} twice; give each of two tables of one name its own source")
    if len(regions := {parts.region for parts in map(arn_parts, texts) if parts is not None}) > 1:
        raise _wrong(f"has ARNs of the regions {', '.join(sorted(regions))}; give each region its own source")
    return texts


def _wrong(problem: str) -> FieldError:
    return FieldError("DynamoDBStreams", "tables", problem)


@dataclass
class DynamoDBStreams(ShardReads):
    """The changes of DynamoDB tables, for the `reads` of operators. Partitions are the shards of their streams.

    `ShardSyncOperator` creates them. A stream that was disabled and enabled again is another stream: the rest
    of the earlier one is read as well, as long as DynamoDB keeps it.

    :param tables: the name of the table, the ARN of the table or of its stream, or a list of **all** tables of the
        source. Partitions of a table that is no longer named are put aside until it is named again. (templated)
    :param view_type: what the streams must hold at least: `"KEYS_ONLY"`, `"NEW_IMAGE"`, `"OLD_IMAGE"` or
        `"NEW_AND_OLD_IMAGES"`. The columns of images that a stream does not hold are null. (templated)
    :param source: the source's name if the operator sets none; by default `dynamodb-streams-` and the table. Several
        tables need a name. (templated)
    """

    kind: ClassVar[str] = LINEAGE_KIND

    tables: Annotated[Texts, ParsedBy(parse=tables_value)] = ()
    _: KW_ONLY
    view_type: Annotated[str, Limits(one_of=tuple(VIEWS))] = "KEYS_ONLY"
    records_per_read: Annotated[int, Limits(minimum=1, maximum=MAX_RECORDS_PER_READ)] = MAX_RECORDS_PER_READ
    table_aws: AwsSettings = field(default_factory=AwsSettings, repr=False, metadata=CONNECTED)
    items: DynamoDBTable | None = field(default=None, repr=False, metadata=CONNECTED)
    """The only table, whose items are read before its changes; None if only changes are read."""

    @property
    @override
    def addresses(self) -> Sequence[str]:
        return self.listed("tables")

    @override
    def client(self) -> StreamsClient:
        from airflow_provider_coordination.sources.dynamodb_streams.client import streams_client

        return streams_client(self.aws, self.table_aws, self.view_type)

    @override
    def history(self, coordinator: SourceCoordinator) -> Callable[[StreamDescription], Iterable[Page]] | None:
        if self.items is None:
            return None
        from airflow_provider_coordination.sources.dynamodb_streams.history import history_pages

        return partial(history_pages, self.items, coordinator)

    @property
    @override
    def own_name(self) -> str:
        return f"dynamodb-streams-{super().own_name}"

    @property
    @override
    def reads_from(self) -> Mapping[str, Any]:
        region = text_value(self.region_name)
        read = {} if self.items is None else {ITEMS_FIRST: True}
        return {"tables": sorted(self.parts), **({} if region is None else {"region": region}), **read}

    @override
    def check_together(self) -> None:
        if not self.tables:
            raise FieldError(type(self).__name__, "tables", "is missing; name a table")
        if (arn_region := region_of(self.tables)) is not None and self.region_name not in (None, arn_region):
            raise self._conflict("region_name", self.region_name, f"field 'tables' has an ARN of region {arn_region}")
        self._check_bounds()

    @override
    def set_connections(self, connections: ConnectionResolver) -> None:
        region = text_value(self.region_name) or region_of(self.tables)
        self.aws = connections.aws(self.aws_conn_id, region, "dynamodbstreams")
        self.table_aws = connections.aws(self.aws_conn_id, region, "dynamodb")
        if self.items is not None:
            self.items = replace(self.items, aws=self.table_aws)
