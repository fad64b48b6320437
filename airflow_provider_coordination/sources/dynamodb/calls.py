"""Calls to DynamoDB as a source: their errors, and what they return as plain JSON and as positions.

The AWS SDK repeats throttled calls with growing pauses. If a call is still throttled, the next round tries again.

DynamoDB types each value (`{"N": "1"}`). In plain JSON, a number has exactly DynamoDB's digits and is never rounded to
a float; binary is base64; a set is a list.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any

from airflow_provider_coordination.aws import ACCESS_CODES, AwsSettings, Permission, aws_client, prove
from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.coordination.partition import format_instant
from airflow_provider_coordination.coordination.texts import sentence
from airflow_provider_coordination.sources.items import ItemUnreadableError, SourceUnavailableError

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

THROTTLED = frozenset(
    {
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
    }
)
NOT_FOUND = frozenset({"ExportNotFoundException", "ResourceNotFoundException", "TableNotFoundException"})
TEMPORARY = frozenset({"InternalServerError", "ResourceInUseException", "ServiceUnavailable"})


class DynamoDBCalls:
    """Makes calls about one table or export. Threads may share it.

    :param aws: the endpoint and the credentials of DynamoDB.
    :param what: what the calls concern, for errors, such as `table 'orders'`.
    """

    def __init__(self, aws: AwsSettings, what: str) -> None:
        self._aws = aws
        self._what = what

    @cached_property
    def client(self) -> Any:
        """The client of boto3."""
        return aws_client(self._aws, "dynamodb")

    def __call__(self, operation: str, **request: Any) -> Mapping[str, Any]:
        """Make one call and return its response.

        :param operation: the client's method.
        :raises ConfigurationError: if the user must fix something.
        :raises SourceUnavailableError: if trying again later may help.
        """
        from botocore import exceptions
        from botocore.parsers import ResponseParserError

        try:
            response: Mapping[str, Any] = getattr(self.client, operation)(**request)
            return response
        except exceptions.ClientError as error:
            raise self._refusal(error) from error
        except (exceptions.ConnectionError, exceptions.HTTPClientError, ResponseParserError) as error:
            raise SourceUnavailableError(
                f"{self._name}: no valid response: {sentence(error)}; check endpoint_url, region and the network"
            ) from error
        except (exceptions.NoCredentialsError, exceptions.PartialCredentialsError) as error:
            raise ConfigurationError(
                f"{self._name}: {sentence(error)}; give an AWS connection with keys, or provide credentials in the "
                "AWS default credential chain (environment, shared file, instance role)"
            ) from error
        except exceptions.BotoCoreError as error:
            raise ConfigurationError(f"{self._name}: {sentence(error)}; check the settings") from error

    @property
    def _name(self) -> str:
        at = f" at {self._aws.endpoint_url}" if self._aws.endpoint_url else ""
        return f"DynamoDB {self._what} in region {self.client.meta.region_name}{at}"

    def _refusal(self, error: ClientError) -> CoordinationError:
        code = str(error.response.get("Error", {}).get("Code", ""))
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        message = sentence(error)
        if error.operation_name.startswith("AssumeRole"):
            return ConfigurationError(
                f"{self._name}: the role cannot be assumed: {message}; check role_arn, external_id and the role's "
                "trust policy"
            )
        if code in NOT_FOUND:
            return ConfigurationError(
                f"{self._name} does not exist; check its name, the region, the account of the credentials and "
                "endpoint_url, or create it"
            )
        if code in ACCESS_CODES:
            return ConfigurationError(
                f"{self._name}: access denied: {message}; allow dynamodb:{error.operation_name}, or check the "
                "credentials"
            )
        if code in THROTTLED:
            return SourceUnavailableError(
                f"{self._name}: throttled after every retry: {message}; lower read_units_per_second, or raise the "
                "table's capacity"
            )
        if code in TEMPORARY or status >= 500:
            return SourceUnavailableError(f"{self._name}: {message}; every retry failed")
        return ConfigurationError(f"{self._name}: {message}; check the settings")


def table_identity(table: Mapping[str, Any]) -> str:
    """Return an identity that distinguishes a table from earlier ones of the same name.

    :param table: as `DescribeTable` returns it. Local servers may leave out the id.
    """
    return str(table.get("TableId") or format_instant(table["CreationDateTime"]))


Attributes = Mapping[str, Any]
"""Names and typed values; binary values are bytes, as in boto3, or base64 text, as in DynamoDB's JSON."""

_text = encode_basestring
JSON_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_is_json_number = re.compile(JSON_NUMBER).fullmatch


def plain_json(attributes: Attributes) -> str:
    """Return an item, or a map within one, as a plain JSON object.

    :raises ItemUnreadableError: if a value has a type that DynamoDB does not have.
    """
    texts = []
    for name, value in attributes.items():
        try:
            (kind,) = value
            held = value[kind]
            if kind == "S":  # most values are text or numbers
                texts.append(f"{_text(name)}:{_text(held)}")
            elif kind == "N" and _is_json_number(held):
                texts.append(f"{_text(name)}:{held}")
            else:
                texts.append(f"{_text(name)}:{_OF_KIND[kind](held)}")
        except (AttributeError, KeyError, TypeError, ValueError):
            raise _unreadable(value) from None
    return "{" + ",".join(texts) + "}"


def _plain(value: Mapping[str, Any]) -> str:
    try:
        (kind,) = value
        return str(_OF_KIND[kind](value[kind]))
    except (AttributeError, KeyError, TypeError, ValueError):
        raise _unreadable(value) from None


def _unreadable(value: object) -> ItemUnreadableError:
    return ItemUnreadableError(f"{value!r} is not a typed value of DynamoDB, such as {{'N': '1'}}")


def _number(held: str) -> str:
    return held if _is_json_number(held) else _text(held)


def _binary(held: bytes | str) -> str:
    return _text(held if isinstance(held, str) else b64encode(held).decode())


def _list(held: Iterable[str]) -> str:
    return "[" + ",".join(held) + "]"


_OF_KIND: Mapping[str, Any] = {
    "S": _text,
    "N": _number,
    "B": _binary,
    "BOOL": lambda held: "true" if held else "false",
    "NULL": lambda held: "null",
    "M": plain_json,
    "L": lambda held: _list(map(_plain, held)),
    "SS": lambda held: _list(map(_text, held)),
    "NS": lambda held: _list(map(_number, held)),
    "BS": lambda held: _list(map(_binary, held)),
}


def position_of(key: Attributes) -> str:
    """Return a key as text, without loss: DynamoDB's JSON."""
    typed = {
        name: {kind: b64encode(held).decode() if kind == "B" else held for kind, held in value.items()}
        for name, value in key.items()
    }
    return json.dumps(typed, separators=(",", ":"), sort_keys=True)


def key_at(position: str) -> dict[str, Any]:
    """Return the key of a text that `position_of` made.

    :raises ItemUnreadableError: if it is not a key.
    """
    try:
        return typed_values(json.loads(position))
    except (AttributeError, TypeError, ValueError):
        raise ItemUnreadableError(
            f"position {position!r} is not a key of DynamoDB; reset the partition to read it from its start"
        ) from None


def typed_values(values: Attributes) -> dict[str, Any]:
    """Return values in boto3's form, from DynamoDB's JSON, in which binary values are base64 text."""
    return {
        name: {kind: b64decode(held, validate=True) if kind == "B" else held for kind, held in value.items()}
        for name, value in values.items()
    }


def permissions(table: str, access: Callable[[str], AwsSettings]) -> tuple[AwsSettings, Sequence[Permission]]:
    """Return the permissions that reading the items of a table needs, also those of a table that is followed.

    :param table: its name.
    :param access: returns the settings for an AWS service.
    """
    settings = access("dynamodb")
    client = aws_client(settings, "dynamodb")
    found: dict[str, Any] = {}

    def describe() -> None:
        found.update(client.describe_table(TableName=table)["Table"])

    prove(describe)  # for the ARN
    calls: dict[str, Callable[[], object]] = {
        "DescribeTable": describe,
        "Scan": partial(client.scan, TableName=table, Limit=1, Select="COUNT"),
    }
    resource = found.get("TableArn", f"table {table}")
    return settings, [
        Permission(action=f"dynamodb:{action}", resource=resource, call=call) for action, call in calls.items()
    ]
