"""Tables of DynamoDB as a kind of source, and what a DAG or a spec says of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.field_hints import Limits
from airflow_provider_coordination.settings import FieldError, text_value
from airflow_provider_coordination.sources.item_kind import ItemKind, changed_values
from airflow_provider_coordination.sources.reads import AwsReads, RereadReads
from airflow_provider_coordination.sources.source_kind import DatasetName, Settings, aws_host

if TYPE_CHECKING:
    pass

MAX_SEGMENTS = 1_000_000
"""The maximum number of segments of a parallel scan that DynamoDB allows."""


@dataclass
class DynamoDBTable(RereadReads, AwsReads):
    """A DynamoDB table, read by a parallel scan, for the `reads` of operators.

    :param table: the name of the table. (templated)
    :param segments: the number of segments of the scan; by default one for each 256 MB of the table. (templated)
    :param scan: a name for this scan of the table. Another name, such as `"{{ ds }}"`, reads the whole table again.
        (templated)
    :param filter_expression: read only items that match; DynamoDB reads, and bills, the others too. (templated)
    :param projection_expression: read only these attributes of each item. (templated)
    :param expression_attribute_names: the values of the names in the expressions that begin with `#`. (templated)
    :param expression_attribute_values: the values of the names that begin with `:`, as DynamoDB JSON, such as
        `{":min": {"N": "10"}}`; binary values as base64. (templated)
    :param consistent_read: use consistent reads, which cost twice the capacity. (templated)
    :param read_units_per_second: the maximum read capacity for the whole table; the segments share it. (templated)
    :param source: the source's name if the operator sets none; `dynamodb-<table>` by default. (templated)
    """

    kind: ClassVar[str] = "dynamodb"

    table: str
    _: KW_ONLY
    segments: Annotated[int | None, Limits(minimum=1, maximum=MAX_SEGMENTS)] = None
    scan: str | None = None
    filter_expression: str | None = None
    projection_expression: str | None = None
    expression_attribute_names: Mapping[str, str] = field(default_factory=dict)
    expression_attribute_values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    consistent_read: bool = False
    read_units_per_second: Annotated[float | None, Limits(above=0)] = None

    @property
    @override
    def own_name(self) -> str:
        return f"dynamodb-{self.table}"

    @property
    @override
    def reads_from(self) -> Mapping[str, Any]:
        return {"table": self.table, "region_name": text_value(self.region_name)}

    @override
    def check_together(self) -> None:
        super().check_together()
        for name, value in self.expression_attribute_values.items():
            if len(value) != 1:
                raise FieldError(
                    type(self).__name__,
                    "expression_attribute_values",
                    f"""must contain typed values such as {{"N": "10"}}; got {dict(value)!r} for {name!r}""",
                )


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


KIND = ItemKind(
    "dynamodb",
    "airflow_provider_coordination.sources.dynamodb.segments:SegmentReader",
    _datasets,
    reads="airflow_provider_coordination.sources.dynamodb.kind:DynamoDBTable",
    left=_left,
    supplier="airflow_provider_coordination.sources.dynamodb.segments:SegmentSupplier",
)
