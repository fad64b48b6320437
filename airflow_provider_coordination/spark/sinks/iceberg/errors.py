"""What it means for a delivery when a catalog raises: it passes, a person is needed, or the table is gone.

Catalogs raise what their libraries have for it: those in databases SQLAlchemy's errors, REST catalogs pyiceberg's and
those of requests, and Glue botocore's.
"""

from __future__ import annotations

from http import HTTPStatus

from airflow_provider_coordination.aws import ACCESS_CODES


def is_away(error: BaseException) -> bool:
    """Return whether an error says that a service does not answer, or is asked too much, which passes."""
    code, status = _of_aws(error)
    if "Throttl" in code or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return True
    return isinstance(error, _away_errors()) and not isinstance(error, (FileNotFoundError, PermissionError))


def is_unauthorized(error: BaseException) -> bool:
    """Return whether an error says that a catalog does not let the job in, whatever it is asked."""
    from pyiceberg.exceptions import AuthorizationExpiredError, ForbiddenError, OAuthError, UnauthorizedError

    kinds = AuthorizationExpiredError | ForbiddenError | OAuthError | UnauthorizedError
    return isinstance(error, kinds) or _of_aws(error)[0] in ACCESS_CODES


def is_gone(error: BaseException) -> bool:
    """Return whether an answer to a commit says that there is no such table: REST catalogs have no class for it."""
    from pyiceberg.exceptions import NoSuchTableError, RESTError

    answer = getattr(error.__cause__, "response", None)
    is_not_found = getattr(answer, "status_code", None) == HTTPStatus.NOT_FOUND
    return isinstance(error, NoSuchTableError) or (isinstance(error, RESTError) and is_not_found)


def _of_aws(error: BaseException) -> tuple[str, int]:
    """Return the code and the HTTP status of what a service of AWS answered; nothing of anybody else's."""
    from botocore.exceptions import ClientError

    if not isinstance(error, ClientError):
        return "", 0
    return error.response["Error"]["Code"], error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)


def _away_errors() -> tuple[type[BaseException], ...]:
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
