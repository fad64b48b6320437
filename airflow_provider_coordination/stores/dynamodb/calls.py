"""Calls to DynamoDB: transient failures are retried until a deadline, and errors are translated.

A call has one of four results: it was done; its condition did not hold, so nothing was written; only a user can fix the
problem; or the deadline passed, and it is unknown whether it was done.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_provider_coordination.aws import ACCESS_CODES, AwsSettings, aws_client
from airflow_provider_coordination.coordination.errors import ConfigurationError, StoreUnavailableError
from airflow_provider_coordination.coordination.texts import sentence
from airflow_provider_coordination.stores.dynamodb.items import Item

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

log = logging.getLogger(__name__)

READ_TIMEOUT_SECONDS = 10.0
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0

OF_MANY_TABLES = ("batch_get_item", "list_tags_of_resource", "transact_write_items")
"""Operations that contain the table name in each item."""
THROTTLED = frozenset(
    {
        "ProvisionedThroughputExceeded",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingError",
        "ThrottlingException",
    }
)
TRANSIENT = THROTTLED | {
    "InternalServerError",
    "LimitExceededException",
    "ReplicatedWriteConflictException",
    "ServiceUnavailable",
    "TransactionConflict",
    "TransactionConflictException",
    "TransactionInProgressException",
}


class RefusedError(Exception):
    """A condition did not hold, and nothing was written.

    :param stored: the stored items, by the index in the transaction of each item whose condition did not hold; None if
        there is no item.
    :param unsure: whether an earlier try of the same call got no response, so that it may have changed the item itself.
    """

    def __init__(self, stored: Mapping[int, Item | None], *, unsure: bool) -> None:
        super().__init__(f"the condition of {len(stored)} items did not hold")
        self.stored = stored
        self.unsure = unsure


class RejectedError(Exception):
    """A call failed with an error that its caller expected.

    :param code: the error's code.
    :param message: the error's message.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True)
class _Failure:
    reason: str
    throttled: bool = False
    no_response: bool = False
    unreachable: bool = False

    @property
    def remedy(self) -> str:
        if self.unreachable:
            return "; check 'endpoint_url', 'region' and that this machine can reach it"
        return "; raise the capacity of the table and its index, or make them on-demand" if self.throttled else ""


class DynamoDbCalls:
    """Makes calls to one table.

    :param aws: the location of DynamoDB and the credentials. `max_attempts` is ignored; the deadline applies instead.
    :param table: the name of the table.
    :param retry_deadline_seconds: how long a call is retried.
    :raises ConfigurationError: if no region is configured.
    """

    def __init__(self, aws: AwsSettings, table: str, retry_deadline_seconds: float) -> None:
        # Retried only here: the SDK's own retries would multiply with these, and hide a lost response.
        self.client = aws_client(replace(aws, max_attempts=1), "dynamodb", read_timeout_seconds=READ_TIMEOUT_SECONDS)
        endpoint = f"&endpoint_url={aws.endpoint_url}" if aws.endpoint_url else ""
        self.name = f"dynamodb://{table}?region={self.client.meta.region_name}{endpoint}"
        self._table = table
        self._role_arn = aws.role_arn
        self._retry_deadline_seconds = retry_deadline_seconds

    def __call__(self, operation: str, *, expect: Collection[str] = (), **request: Any) -> Mapping[str, Any]:
        """Make one call and return its response.

        :param operation: the client's method; the table's name is added to the request, except for `OF_MANY_TABLES`.
        :param expect: codes of errors to raise as `RejectedError`.
        :raises RefusedError: if a condition did not hold.
        :raises RejectedError: for an expected error.
        :raises ConfigurationError: if only a user can fix the problem.
        :raises StoreUnavailableError: if it kept failing until the deadline; it is unknown whether it was done.
        """
        from botocore import exceptions
        from botocore.parsers import ResponseParserError

        if operation not in OF_MANY_TABLES:
            request["TableName"] = self._table
        deadline = time.monotonic() + self._retry_deadline_seconds
        longest_pause = FIRST_PAUSE_SECONDS
        unsure = False
        while True:
            try:
                response: Mapping[str, Any] = getattr(self.client, operation)(**request)
                return response
            except exceptions.ClientError as error:
                failure = self._transient_failure(error, expect, unsure=unsure)
            except (exceptions.ConnectionError, exceptions.HTTPClientError, ResponseParserError) as error:
                unreachable = isinstance(error, exceptions.EndpointConnectionError | exceptions.ConnectTimeoutError)
                failure = _Failure(sentence(error), no_response=True, unreachable=unreachable)
            except (exceptions.CredentialRetrievalError, exceptions.MetadataRetrievalError) as error:
                failure = _Failure(sentence(error))
            except exceptions.BotoCoreError as error:
                raise self._sdk_error(error) from error
            unsure = unsure or failure.no_response
            pause = random.uniform(0.0, longest_pause)
            longest_pause = min(2 * longest_pause, LONGEST_PAUSE_SECONDS)
            if time.monotonic() + pause > deadline:
                raise StoreUnavailableError(f"store {self.name} cannot be used: {failure.reason}{failure.remedy}")
            log.debug("store %s: %s; retrying in %.2f s", self.name, failure.reason, pause)
            time.sleep(pause)

    def pages(self, operation: str, **request: Any) -> Iterator[Mapping[str, Any]]:
        """Yield the responses of a paginated call; each page is requested only when it is needed.

        See `__call__` for its errors.
        """
        while True:
            response = self(operation, **request)
            yield response
            if "LastEvaluatedKey" not in response:
                return
            request["ExclusiveStartKey"] = response["LastEvaluatedKey"]

    def batch_get(self, keys: Sequence[Mapping[str, Any]], attribute: str | None = None) -> list[Item]:
        """Return the items that exist, read consistently.

        Keys that DynamoDB leaves unprocessed because of its limits are requested again. See `__call__` for its errors.

        :param keys: the keys of the items.
        :param attribute: the only attribute to return of each item; None for all.
        """
        request: dict[str, Any] = {"Keys": list(keys), "ConsistentRead": True}
        if attribute is not None:
            request |= {"ProjectionExpression": "#attribute", "ExpressionAttributeNames": {"#attribute": attribute}}
        items_found: list[Item] = []
        deadline = time.monotonic() + self._retry_deadline_seconds
        longest_pause = FIRST_PAUSE_SECONDS
        while True:
            response = self("batch_get_item", RequestItems={self._table: request})
            for items in response["Responses"].values():
                items_found += items
            left = list(response.get("UnprocessedKeys", {}).values())
            if not left:
                return items_found
            [request] = left
            pause = random.uniform(0.0, longest_pause)
            longest_pause = min(2 * longest_pause, LONGEST_PAUSE_SECONDS)
            if time.monotonic() + pause > deadline:
                failure = _Failure(f"{len(request['Keys'])} keys were left unprocessed", throttled=True)
                raise StoreUnavailableError(f"store {self.name} cannot be used: {failure.reason}{failure.remedy}")
            time.sleep(pause)

    def _transient_failure(self, error: ClientError, expect: Collection[str], *, unsure: bool) -> _Failure:
        """Return the failure of a call if a retry may help; raise the translated error if not."""
        code = str(error.response.get("Error", {}).get("Code", ""))
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        message = sentence(error)
        if error.operation_name.startswith("AssumeRole") and code not in TRANSIENT and status < 500:
            raise ConfigurationError(
                f"store {self.name}: the role {self._role_arn!r} cannot be assumed: {message}; "
                "check the role's name, its external id and its trust policy"
            ) from error
        if code in expect:
            raise RejectedError(code, message) from error
        if code == "ConditionalCheckFailedException":
            raise RefusedError({0: error.response.get("Item")}, unsure=unsure) from None  # type: ignore[dict-item]
        if code == "TransactionCanceledException":
            return self._cancellation(error, unsure=unsure)
        if code in TRANSIENT or status >= 500:
            return _Failure(message, throttled=code in THROTTLED, no_response=status >= 500)
        raise self._rejection(error, code, message) from error

    def _cancellation(self, error: ClientError, *, unsure: bool) -> _Failure:
        reasons: list[dict[str, Any]] = error.response.get("CancellationReasons", [])  # type: ignore[assignment]
        refused = {
            index: reason.get("Item")
            for index, reason in enumerate(reasons)
            if reason.get("Code") == "ConditionalCheckFailed"
        }
        if refused:
            raise RefusedError(refused, unsure=unsure) from None
        codes = {str(reason.get("Code")) for reason in reasons} - {"None"}
        if codes and codes <= TRANSIENT:
            return _Failure(
                f"a transaction was cancelled: {', '.join(sorted(codes))}", throttled=bool(codes & THROTTLED)
            )
        message = "; ".join(str(reason.get("Message")) for reason in reasons if reason.get("Message"))
        raise ConfigurationError(
            f"store {self.name}: a transaction was refused: {message or sentence(error)}"
        ) from error

    def _rejection(self, error: ClientError, code: str, message: str) -> ConfigurationError:
        if code in ACCESS_CODES:
            return ConfigurationError(
                f"store {self.name}: access refused: {message}; allow dynamodb:{error.operation_name} as the policy in "
                "docs/dynamodb.md does, or check the credentials"
            )
        if code == "ResourceNotFoundException":
            return ConfigurationError(
                f"store {self.name}: the table does not exist; create it, or check 'table', 'region' and the account"
            )
        return ConfigurationError(f"store {self.name}: {message}")

    def _sdk_error(self, error: Exception) -> ConfigurationError:
        from botocore.exceptions import NoCredentialsError, PartialCredentialsError

        if isinstance(error, (NoCredentialsError, PartialCredentialsError)):
            return ConfigurationError(
                f"store {self.name}: {sentence(error)}; give an AWS connection in 'aws_conn_id', or credentials "
                "where the AWS SDK finds them (environment, shared file, instance role)"
            )
        return ConfigurationError(f"store {self.name}: {sentence(error)}")
