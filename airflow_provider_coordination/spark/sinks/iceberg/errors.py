"""What a catalog's error means for a delivery: a temporary failure, a case for the user, or a missing table.

Catalogs raise the errors of their libraries: SQLAlchemy's for databases, those of pyiceberg and requests for REST
catalogs, and botocore's for Glue.
"""

from __future__ import annotations

from http import HTTPStatus

from airflow_provider_coordination.aws import ACCESS_CODES


def is_unavailable(error: BaseException) -> bool:
    """Return whether an error means that a service is unavailable or throttled, which is temporary."""
    code, status = _of_aws(error)
    if "Throttl" in code or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return True
    return isinstance(error, _unavailable_errors()) and not isinstance(error, (FileNotFoundError, PermissionError))


def is_unauthorized(error: BaseException) -> bool:
    """Return whether an error means that a catalog denies the job any access."""
    from pyiceberg.exceptions import AuthorizationExpiredError, ForbiddenError, OAuthError, UnauthorizedError

    kinds = AuthorizationExpiredError | ForbiddenError | OAuthError | UnauthorizedError
    return isinstance(error, kinds) or _of_aws(error)[0] in ACCESS_CODES


def is_gone(error: BaseException) -> bool:
    """Return whether a response to a commit means that there is no such table; REST catalogs have no class for it."""
    from pyiceberg.exceptions import NoSuchTableError, RESTError

    response = getattr(error.__cause__, "response", None)
    is_not_found = getattr(response, "status_code", None) == HTTPStatus.NOT_FOUND
    return isinstance(error, NoSuchTableError) or (isinstance(error, RESTError) and is_not_found)


def _of_aws(error: BaseException) -> tuple[str, int]:
    """Return the code and the HTTP status of an AWS error; empty values for any other error."""
    from botocore.exceptions import ClientError

    if not isinstance(error, ClientError):
        return "", 0
    return error.response["Error"]["Code"], error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)


def _unavailable_errors() -> tuple[type[BaseException], ...]:
    from botocore.exceptions import ConnectionError as AwsConnectionError
    from botocore.exceptions import HTTPClientError
    from pyiceberg.exceptions import (
        CommitStateUnknownException,
        ServerError,
        ServiceUnavailableError,
        TooManyRequestsError,
    )
    from sqlalchemy.exc import InterfaceError, OperationalError

    return (
        OSError,  # of requests, sockets and filesystems
        CommitStateUnknownException,
        ServerError,
        ServiceUnavailableError,
        TooManyRequestsError,
        InterfaceError,
        OperationalError,
        AwsConnectionError,
        HTTPClientError,
    )
