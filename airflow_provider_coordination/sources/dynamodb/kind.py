"""Tables of DynamoDB as a kind of source, and what a DAG or a spec says of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import format_instant
from airflow_provider_coordination.coordination.registry import import_attribute
from airflow_provider_coordination.field_hints import Limits
from airflow_provider_coordination.settings import FieldError, text_value
from airflow_provider_coordination.sources.item_kind import ItemKind, changed_values
from airflow_provider_coordination.sources.kinesis.positions import LATEST, TRIM_HORIZON
from airflow_provider_coordination.sources.kinesis.progress import LINEAGE_KIND as FOLLOWED_KIND
from airflow_provider_coordination.sources.kinesis.progress import ON_DATA_LOSS
from airflow_provider_coordination.sources.kinesis.stream_names import stream_name, stream_of
from airflow_provider_coordination.sources.kinesis.sync_state import StreamState, SyncState
from airflow_provider_coordination.sources.landed import integer_of, objects_in
from airflow_provider_coordination.sources.peek import Peek
from airflow_provider_coordination.sources.questions import aws_question, table_question
from airflow_provider_coordination.sources.reads import AwsReads, Connected, Reads, RereadReads
from airflow_provider_coordination.sources.reset_targets import EARLIEST, ResetPlan, Target
from airflow_provider_coordination.sources.source_kind import (
    Access,
    DatasetName,
    Finder,
    Inspection,
    Settings,
    aws_host,
)

if TYPE_CHECKING:
    from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
    from airflow_provider_coordination.coordination.partition import Partition
    from airflow_provider_coordination.sources.connections import ConnectionResolver
    from airflow_provider_coordination.sources.kinesis.settings import ShardReads

KIND_NAME = "dynamodb"
FOLLOWED = "airflow_provider_coordination.sources.dynamodb_streams.settings:DynamoDBStreams"
"""`module:attribute` of what describes the changes of a table that is followed."""
EPOCH = "epoch"
"""The name in an item that makes it a segment of a history: when the stream after it was created, in seconds."""
NOT_AGAIN = "part of the history, which is read again only from its start"
MAX_SEGMENTS = 1_000_000
"""The maximum number of segments of a parallel scan that DynamoDB allows."""


@dataclass
class DynamoDBTable(RereadReads, AwsReads):
    """A DynamoDB table, read by a parallel scan, for the `reads` of operators.

    :param table: the name of the table. (templated)
    :param follow: read the items once, then the changes of the table's stream, which must hold new images. The changes
        begin before the items are read, so that none is missed. `ShardSyncOperator` creates the partitions. Not with
        expressions, `scan`, `interval` and `count`.
    :param segments: the number of segments of the scan, at most 1,000,000; by default one for each 256 MB of the table,
        at most 1024. (templated)
    :param scan: a name for this scan of the table. Another name, such as `"{{ ds }}"`, reads all of it again; without a
        name it is read once. (templated)
    :param filter_expression: read only items that match; DynamoDB reads, and bills, the others too. (templated)
    :param projection_expression: read only these attributes of each item. (templated)
    :param expression_attribute_names: the values of the names in the expressions that begin with `#`. (templated)
    :param expression_attribute_values: the values of the names that begin with `:`, as DynamoDB JSON, such as
        `{":min": {"N": "10"}}`; binary values as base64. (templated)
    :param consistent_read: use consistent reads, which cost twice the capacity. (templated)
    :param read_units_per_second: the maximum read capacity for the whole table; the segments share it. (templated)
    :param source: the source's name if the operator sets none; `dynamodb-<table>` by default. (templated)
    :param on_data_loss: with `follow`, after a loss of unread changes: `"fail"` parks their partition, `"earliest"`
        reads on behind the gap, `"latest"` from now on. (templated)
    """

    table: str
    _: KW_ONLY
    follow: bool = False
    segments: Annotated[int | None, Limits(minimum=1, maximum=MAX_SEGMENTS)] = None
    scan: str | None = None
    filter_expression: str | None = None
    projection_expression: str | None = None
    expression_attribute_names: Mapping[str, str] = field(default_factory=dict)
    expression_attribute_values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    consistent_read: bool = False
    read_units_per_second: Annotated[float | None, Limits(above=0)] = None
    on_data_loss: Annotated[str, Limits(one_of=ON_DATA_LOSS)] = "fail"

    @property
    def is_followed(self) -> bool:
        """Whether the changes are read as well.

        :raises FieldError: if `follow` is a template: a DAG must know it when it is parsed.
        """
        return bool(self.converted("follow"))

    @property
    @override
    def kind(self) -> str:
        return FOLLOWED_KIND if self.is_followed else KIND_NAME

    @property
    def is_endless(self) -> bool:  # type: ignore[override]  # of one class, some tables end and some do not
        """Whether its partitions have no end."""
        return self.is_followed

    @property
    def is_synced(self) -> bool:  # type: ignore[override]
        """Whether its jobs keep its partitions in sync."""
        return self.is_followed

    @property
    def changes(self) -> ShardReads:
        """What is read of a followed table: the changes, and its items before them."""
        described: ShardReads = import_attribute(FOLLOWED, "changes of tables")(
            (self.table,),
            view_type="NEW_IMAGE",
            source=self.default_source,
            initial_position=LATEST,
            on_data_loss=self.on_data_loss,
            aws_conn_id=self.aws_conn_id,
            region_name=self.region_name,
            items=self,
        )
        return described

    @property
    @override
    def own_name(self) -> str:
        return f"dynamodb-{self.table}"

    @property
    @override
    def parts(self) -> Sequence[str]:
        return self.changes.parts if self.is_followed else ()

    @property
    @override
    def reads_from(self) -> Mapping[str, Any]:
        if self.is_followed:
            return self.changes.reads_from
        return {"table": self.table, "region_name": text_value(self.region_name)}

    @override
    def connect(self, connections: ConnectionResolver) -> Connected:
        return self.resolved().changes.connect(connections) if self.is_followed else super().connect(connections)

    @override
    def sync(self, coordinator: SourceCoordinator, connections: ConnectionResolver) -> object:
        return self.resolved().changes.sync(coordinator, connections)

    @override
    def within(self, start: datetime, end: datetime) -> Reads:
        if not self.is_followed:
            return super().within(start, end)
        raise ConfigurationError(
            f"DynamoDBTable: field 'follow' is true, so an interval such as '{format_instant(start)}/"
            f"{format_instant(end)}' cannot be read: changes are later than the items before them. Reset the source to "
            f"{EARLIEST!r} to read it again, or read the changes of the interval with DynamoDBStreams, as a source of "
            "their own"
        )

    @override
    def check_together(self) -> None:
        super().check_together()
        if self.follow:
            self._check_followed()
        elif self.on_data_loss != "fail":
            raise self.invalid("on_data_loss", "needs 'follow'")
        for name, value in self.expression_attribute_values.items():
            if len(value) != 1:
                raise FieldError(
                    type(self).__name__,
                    "expression_attribute_values",
                    f"""must contain typed values such as {{"N": "10"}}; got {dict(value)!r} for {name!r}""",
                )

    def _check_followed(self) -> None:
        alone = ("scan", "filter_expression", "projection_expression", "interval", "count")
        for name in alone:
            if getattr(self, name) is not None:
                raise self.invalid(name, "must not be given beside 'follow', which reads every item and change")
        if "/stream/" in self.table:
            raise self.invalid("table", "must be the name or the ARN of a table, not of its stream")
        try:
            self.changes.resolved()
        except FieldError as error:
            raise error.of(self.title, {"tables": "table"}) from None


def _datasets(settings: Settings) -> Iterable[DatasetName]:
    yield table_dataset(settings["table"], settings["aws"])


def table_dataset(table: str, aws: Mapping[str, Any]) -> DatasetName:
    """Return the dataset of a table.

    :param aws: the AWS settings, as a JSON object.
    """
    return DatasetName(f"dynamodb://{aws_host('dynamodb', aws)}", table)


def _left(before: Settings, now: Settings) -> Iterable[str]:
    """Return the table if it differs, or its region; without `region_name` the connection gives the region."""
    regions = ("region_name",) if now.get("region_name") is not None else ()
    return changed_values(before, now, ("table", *regions))


PEEKED_UNITS = 50.0
"""The read capacity that a preview takes a second at most, for each segment that it reads."""


class TableKind(ItemKind):
    """Tables of DynamoDB. The segments of a history belong to the table, whose stream is reset with them."""

    @override
    def rebuilt_state(self, known: Mapping[str, Any], starts: Collection[str]) -> Mapping[str, Any]:
        """Where the changes of a history began is not known; from the earliest one on, none is missing."""
        streams = {
            (stream_of(key), item[EPOCH]) for key, progress in known.items() for item in progress.items if EPOCH in item
        }
        states = (StreamState(stream=name, creation_epoch=at, began=TRIM_HORIZON) for name, at in sorted(streams))
        named = tuple(sorted({name for name, _ in streams}))
        return SyncState(streams=tuple(states), named=named).to_mapping() if streams else {}

    @override
    def peek(self, service: Any, settings: Settings, peek: Peek, finder: Finder) -> None:
        """Pages of a hundred items at first, and slowly: a scan takes capacity from others."""
        pace = {"read_units_per_second": settings.get("read_units_per_second") or PEEKED_UNITS}
        super().peek(service, {**settings, **pace}, peek, finder)

    @override
    def group_of(self, partition: Partition) -> str | None:
        history = history_of(partition)
        return None if history is None else history.table

    @override
    def inspect(self, partition: Partition, now: datetime) -> Inspection:
        """A history is of the kind of source that it belongs to."""
        glance = super().inspect(partition, now)
        return glance if history_of(partition) is None else replace(glance, kind=FOLLOWED_KIND)

    @override
    def named_group(self, name: str) -> tuple[str, Settings]:
        return stream_name(name), {}

    @override
    def plan_partitions(self, partitions: Sequence[Partition], target: Target, access: Access | None) -> ResetPlan:
        """A history is read again with the changes after it only: otherwise it would be later than they are."""
        for partition in filter(history_of, partitions):
            raise ConfigurationError(
                f"partition {partition.partition_key!r} is part of the history of a table that is followed; reset the "
                f"whole table instead, as part {self.group_of(partition)!r} of the source"
            )
        return super().plan_partitions(partitions, target, access)

    @override
    def plan_group(
        self, group: str | None, partitions: Sequence[Partition], target: Target, access: Access
    ) -> ResetPlan:
        if group is None:
            return self.plan_partitions(partitions, target, access)
        if target.is_earliest:
            return super().plan_partitions(partitions, target, access)
        return ResetPlan(target=target, steps=(), left={each.partition_key: NOT_AGAIN for each in partitions})


class HistoryKey(NamedTuple):
    """The history that precedes the changes of a stream.

    :param table: the table's name.
    :param creation_epoch: when the stream was created, in whole seconds since 1970.
    """

    table: str
    creation_epoch: int


def history_of(partition: Partition) -> HistoryKey | None:
    """Return the history that a partition is a segment of; None if it is none."""
    epochs = (integer_of(item.get(EPOCH)) for item in objects_in(partition.progress, "items"))
    epoch = next((epoch for epoch in epochs if epoch is not None), None)
    return None if epoch is None else HistoryKey(stream_of(partition.partition_key), epoch)


KIND = TableKind(
    KIND_NAME,
    "airflow_provider_coordination.sources.dynamodb.segments:SegmentReader",
    _datasets,
    reads="airflow_provider_coordination.sources.dynamodb.kind:DynamoDBTable",
    left=_left,
    supplier="airflow_provider_coordination.sources.dynamodb.segments:SegmentSupplier",
    permissions="airflow_provider_coordination.sources.dynamodb.calls:permissions",
    is_peeked=True,
    questions=(table_question("table"), aws_question()),
)
