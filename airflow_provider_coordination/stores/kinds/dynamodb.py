"""Stores in a DynamoDB table."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated
from urllib.parse import parse_qsl, urlsplit

from airflow_provider_coordination.aws import AwsSettings, Permission
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.field_hints import Limits
from airflow_provider_coordination.settings import read_field
from airflow_provider_coordination.stores.kind import DEFAULT_TABLE, ConnectionFields, StoreKind, StoreReport

if TYPE_CHECKING:
    from airflow_provider_coordination.stores.dynamodb.store import DynamoDbStore

URL_FIELDS = ("region", "endpoint_url", "role_arn", "external_id")
AT_LEAST_A_SECOND = Annotated[
    timedelta,
    Limits(
        minimum=timedelta(seconds=1),
        words="a duration of at least a second, such as 'P30D', or a number of seconds",
    ),
]
TAG_NAME = re.compile(r"(?!aws:).{1,128}", re.IGNORECASE)
MOST_TAGS = 50
MOST_TAG_CHARACTERS = 256
AT_LEAST_ONE = Annotated[int, Limits(minimum=1, words="a whole number, at least 1")]
CAPACITIES = ("provisioned_read_capacity_units", "provisioned_write_capacity_units")


@dataclass(frozen=True, kw_only=True)
class DynamoDbSettings:
    """The table, and how to reach it.

    :param table: the name of the table, which is created if it does not exist.
    :param aws: the location of DynamoDB and the credentials; `max_attempts` is ignored.
    :param skip_table_creation: only check the table, and create and change nothing.
    :param ttl_seconds: how long completed partitions are kept; None forever.
    :param read_capacity_units: with `write_capacity_units`, the provisioned capacity of a new table, and of its index;
        without, the table is on-demand.
    :param write_capacity_units: see `read_capacity_units`.
    :param point_in_time_recovery: whether a new table can be restored to any instant of the last 35 days.
    :param deletion_protection: whether a new table refuses to be deleted.
    :param tags: the tags of a new table.
    """

    table: str = DEFAULT_TABLE
    aws: AwsSettings = field(default_factory=AwsSettings)
    skip_table_creation: bool = False
    ttl_seconds: int | None = None
    read_capacity_units: int | None = None
    write_capacity_units: int | None = None
    point_in_time_recovery: bool = False
    deletion_protection: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)


class DynamoDbKind(StoreKind[DynamoDbSettings]):
    """The kind of `DynamoDbStore`."""

    settings = DynamoDbSettings
    connection_fields = (
        "table",
        "aws_conn_id",
        "endpoint_url",
        "sts_role_arn",
        "sts_external_id",
        "skip_table_creation",
        "ttl",
        *CAPACITIES,
        "point_in_time_recovery",
        "deletion_protection",
        "tags",
    )

    @override
    def open(self, settings: DynamoDbSettings, *, retry_deadline_seconds: float) -> CoordinationStore:
        from airflow_provider_coordination.stores.dynamodb.store import DynamoDbStore
        from airflow_provider_coordination.stores.dynamodb.table import TableOptions

        capacity = (settings.read_capacity_units, settings.write_capacity_units)
        return DynamoDbStore(
            settings.aws,
            table=settings.table,
            options=TableOptions(
                skip_creation=settings.skip_table_creation,
                capacity=None if None in capacity else capacity,  # type: ignore[arg-type]
                point_in_time_recovery=settings.point_in_time_recovery,
                deletion_protection=settings.deletion_protection,
                tags=settings.tags,
            ),
            ttl_seconds=settings.ttl_seconds,
            retry_deadline_seconds=retry_deadline_seconds,
        )

    @override
    def check(self, settings: DynamoDbSettings) -> None:
        for name in ("ttl_seconds", "read_capacity_units", "write_capacity_units"):
            value = getattr(settings, name)
            if value is not None and (type(value) is not int or value < 1):
                raise ConfigurationError(
                    f"store 'dynamodb': field {name!r} must be a whole number, at least 1; got {value!r}"
                )
        if (settings.read_capacity_units is None) != (settings.write_capacity_units is None):
            missing = "read_capacity_units" if settings.read_capacity_units is None else "write_capacity_units"
            raise ConfigurationError(
                f"store 'dynamodb': field {missing!r} is missing; give both capacities, or neither for on-demand"
            )

        if len(settings.tags) > MOST_TAGS:
            raise ConfigurationError(
                f"store 'dynamodb': field 'tags' has {len(settings.tags)} tags; give at most {MOST_TAGS}"
            )
        for name, value in settings.tags.items():
            if not TAG_NAME.fullmatch(name) or len(value) > MOST_TAG_CHARACTERS:
                raise ConfigurationError(
                    f"store 'dynamodb': field 'tags' has the tag {name!r} with the value {value!r}; give names of 1 to "
                    f"128 characters that do not begin with 'aws:', and values of at most {MOST_TAG_CHARACTERS}"
                )

    @override
    def from_url(self, url: str, table: str | None) -> DynamoDbSettings:
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        unknown = [name for name in query if name not in URL_FIELDS]
        if unknown or parts.path.strip("/") or not url.startswith("dynamodb://"):
            raise ConfigurationError(
                f"store URL {url!r} is not usable: give dynamodb://<table>, optionally with a query of "
                f"{', '.join(URL_FIELDS)}, for example dynamodb://coordination_partition?region=eu-west-1"
            )
        if table and parts.netloc and table != parts.netloc:
            raise ConfigurationError(f"store URL {url!r} contains another table than {table!r}; give only one of them")
        aws = AwsSettings(**{field: value or None for field, value in query.items()})  # type: ignore[arg-type]
        return DynamoDbSettings(aws=aws, table=parts.netloc or table or DEFAULT_TABLE)

    @override
    def from_connection(self, connection: ConnectionFields) -> DynamoDbSettings:
        if connection.login or connection.password:
            raise ConfigurationError(
                f"{connection.name}: DynamoDB has no login; leave login and password empty, and give a connection with "
                "keys in 'aws_conn_id'"
            )
        ttl: timedelta | None = connection.read("ttl", AT_LEAST_A_SECOND)
        read, write = (connection.read(name, AT_LEAST_ONE) for name in CAPACITIES)
        if (read is None) != (write is None):
            missing, present = CAPACITIES if read is None else reversed(CAPACITIES)
            raise ConfigurationError(
                f"{connection.name}: field {missing!r} is missing; give it, or remove {present!r} for on-demand"
            )
        return DynamoDbSettings(
            table=connection.text("table") or DEFAULT_TABLE,
            aws=_aws(connection),
            skip_table_creation=connection.read("skip_table_creation", bool, False),
            ttl_seconds=None if ttl is None else int(ttl.total_seconds()),
            read_capacity_units=read,
            write_capacity_units=write,
            point_in_time_recovery=connection.read("point_in_time_recovery", bool, False),
            deletion_protection=connection.read("deletion_protection", bool, False),
            tags=_tags(connection),
        )

    @override
    def report(self, store: DynamoDbStore, now: Callable[[], datetime]) -> StoreReport:
        return store.report(now)

    @override
    def permissions(self, store: DynamoDbStore) -> tuple[AwsSettings, Sequence[Permission]]:
        return store.permissions()

    @override
    def secrets(self, settings: DynamoDbSettings) -> Iterable[str]:
        return filter(None, (settings.aws.secret_access_key, settings.aws.session_token))


def _tags(connection: ConnectionFields) -> Mapping[str, str]:
    """Return the tags; a form of Airflow writes the JSON object as text."""
    value = connection.values.get("tags", {})
    if isinstance(value, str):
        with suppress(ValueError):
            value = json.loads(value)
    tags: Mapping[str, str] = read_field(connection.name, "tags", value, Mapping[str, str])
    return tags


def _aws(connection: ConnectionFields) -> AwsSettings:
    conn_id, region = connection.text("aws_conn_id"), connection.text("region")
    role_arn, external_id = connection.text("sts_role_arn"), connection.text("sts_external_id")
    try:
        base = AwsSettings(region=region) if conn_id is None else connection.aws(conn_id, "dynamodb", region)
        return replace(
            base,
            endpoint_url=connection.text("endpoint_url") or base.endpoint_url,
            role_arn=role_arn or base.role_arn,
            external_id=external_id or (None if role_arn else base.external_id),
        )
    except ConfigurationError as error:
        raise ConfigurationError(f"{connection.name}: {error}") from None


KIND = DynamoDbKind()
