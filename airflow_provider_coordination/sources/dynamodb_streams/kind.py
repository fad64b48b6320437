"""The streams of DynamoDB tables as a kind of source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_coordination.aws import AwsClients, AwsSettings, Permission, aws_client
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.supplier import Supplier
from airflow_provider_coordination.settings import read_settings
from airflow_provider_coordination.sources.connections import ConnectionResolver
from airflow_provider_coordination.sources.dynamodb.kind import table_dataset
from airflow_provider_coordination.sources.dynamodb_streams.settings import ITEMS_FIRST, DynamoDBStreams
from airflow_provider_coordination.sources.kinesis.kind import KinesisKind
from airflow_provider_coordination.sources.kinesis.pacing import READS_PER_SECOND
from airflow_provider_coordination.sources.kinesis.progress import LINEAGE_KIND
from airflow_provider_coordination.sources.kinesis.shards import MIN_RETENTION, open_shards
from airflow_provider_coordination.sources.kinesis.stream_names import StreamService, stream_name
from airflow_provider_coordination.sources.peek import Peek
from airflow_provider_coordination.sources.questions import aws_question, table_question
from airflow_provider_coordination.sources.source_kind import Access, Capacity, DatasetName, Finder, Settings

if TYPE_CHECKING:
    from airflow_provider_coordination.coordination.partition import Partition
    from airflow_provider_coordination.sources.kinesis.service import Unread
    from airflow_provider_coordination.sources.reset_targets import ResetPlan, Target


class DynamoDBStreamsKind(KinesisKind):
    """Streams of DynamoDB tables. Their shards, and their page, are as those of Kinesis, without hash keys."""

    reads = "airflow_provider_coordination.sources.dynamodb_streams.settings:DynamoDBStreams"
    reading = "airflow_provider_coordination.spark.dynamodb_streams.reading:DynamoDBStreamsSource"
    questions = (table_question("tables"), aws_question())
    import_commands = None

    @override
    def supplier(self, described: Any, coordinator: SourceCoordinator, connections: ConnectionResolver) -> Supplier:
        raise ConfigurationError(
            f"DynamoDBStreams: ShardSyncOperator creates the partitions of source {coordinator.source!r}; "
            "use it instead of CreatePartitionsOperator"
        )

    @override
    def service(self, settings: Settings, clients: AwsClients = aws_client) -> StreamService:
        from airflow_provider_coordination.sources.dynamodb_streams.client import streams_client

        aws, table_aws = (
            read_settings(AwsSettings, "AWS settings of DynamoDB", settings.get(name) or settings.get("aws", {}))
            for name in ("aws", "table_aws")
        )
        client = streams_client(aws, table_aws, settings.get("view_type", "KEYS_ONLY"), clients)
        return StreamService(client, tuple(settings.get("tables", ())))

    @override
    def sample(self, service: StreamService, settings: Settings) -> Sequence[bytes]:
        from airflow_provider_coordination.sources.dynamodb_streams.service import sample

        return sample(service.client, settings["tables"])

    @override
    def peek(self, service: StreamService, settings: Settings, peek: Peek, finder: Finder) -> None:
        from airflow_provider_coordination.sources.dynamodb_streams.service import peek_tables

        peek_tables(service.client, settings["tables"], peek)

    @override
    def open_partitions(self, service: StreamService, settings: Settings) -> int:
        return sum(open_shards(service.client, table) for table in settings["tables"])

    @override
    def unread(self, service: StreamService, partition: Partition) -> Unread:
        from airflow_provider_coordination.sources.dynamodb_streams.service import unread

        return unread(service, partition)

    @override
    def check(self, settings: Settings) -> None:
        DynamoDBStreams.from_mapping(settings)

    @override
    def capacity(self, settings: Settings, *, ask: bool) -> Capacity:
        return Capacity(
            partitions=self.open_partitions(self.service(settings), settings) if ask else None,
            retention=MIN_RETENTION,
            is_shared=True,
            reads_per_second=settings.get("reads_per_second", READS_PER_SECOND),
        )

    @override
    def location(self, settings: Settings) -> dict[str, Any]:
        aws = settings.get("aws", {})
        endpoint = {name: aws[name] for name in ("region", "endpoint_url") if aws.get(name) is not None}
        read = {ITEMS_FIRST: True} if settings.get("items") else {}
        return {"tables": sorted(map(stream_name, settings["tables"])), **endpoint, **read}

    @override
    def left(self, before: Settings, now: Settings) -> Sequence[str]:
        """Items that were read before the changes are part of the source, or are missing in it."""
        read = ["the changes with" if each.get(ITEMS_FIRST) else "the changes without" for each in (before, now)]
        return [*super().left(before, now), *([f"{read[0]} the items before them"] if read[0] != read[1] else [])]

    @override
    def plan_partitions(self, partitions: Sequence[Partition], target: Target, access: Access | None) -> ResetPlan:
        """A shard that was read to its end is reset with its table only: its changes are older than its children's."""
        for partition in partitions:
            if partition.progress.get("is_ended"):
                raise ConfigurationError(
                    f"partition {partition.partition_key!r} was read to its end, and its children after it, so its "
                    "changes would be taken for later ones; reset the whole table instead, as a part of the source"
                )
        return super().plan_partitions(partitions, target, access)

    @override
    def permissions(
        self, what: str, access: Callable[[str], AwsSettings]
    ) -> tuple[AwsSettings, Sequence[Permission]] | None:
        """`what` is a table, by its name or ARN."""
        from airflow_provider_coordination.sources.dynamodb_streams.service import permissions

        settings = access("dynamodbstreams")
        return settings, list(permissions(settings, access("dynamodb"), what))

    @override
    def datasets(self, settings: Settings) -> Iterable[DatasetName]:
        return (table_dataset(stream_name(table), settings["aws"]) for table in settings.get("tables", ()))


KIND = DynamoDBStreamsKind(LINEAGE_KIND)
