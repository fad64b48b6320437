"""The errors of catalogs, by their meaning for a delivery."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError
from pyiceberg import exceptions
from requests import HTTPError, Response

from airflow_provider_coordination.spark.sinks.iceberg.catalog import is_gone, is_unauthorized, is_unavailable


def of_glue(code: str, status: int) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "UpdateTable")


def of_rest(status: int, kind: type[Exception] = exceptions.RESTError) -> Exception:
    answer, error = Response(), kind("said")
    answer.status_code = status
    error.__cause__ = HTTPError(response=answer)
    return error


@pytest.mark.parametrize(
    ("error", "means"),
    [
        (of_glue("ThrottlingException", 400), "away"),
        (of_glue("InternalServiceException", 500), "away"),
        (ConnectionClosedError(endpoint_url="https://glue"), "away"),
        (of_glue("AccessDeniedException", 400), "unauthorized"),
        (of_glue("ExpiredTokenException", 400), "unauthorized"),
        (of_glue("InvalidInputException", 400), ""),
        (of_rest(429), "away"),
        (of_rest(500, exceptions.CommitStateUnknownException), "away"),
        (of_rest(503, exceptions.ServiceUnavailableError), "away"),
        (of_rest(401, exceptions.UnauthorizedError), "unauthorized"),
        (of_rest(403, exceptions.ForbiddenError), "unauthorized"),
        (of_rest(400, exceptions.OAuthError), "unauthorized"),
        (of_rest(404), "gone"),
        (exceptions.NoSuchTableError("said"), "gone"),
        (of_rest(400, exceptions.BadRequestError), ""),
        (of_rest(409, exceptions.CommitFailedException), ""),
        (FileNotFoundError("said"), ""),
        (PermissionError("said"), ""),
    ],
    ids=lambda value: getattr(value, "code", None) or (value if isinstance(value, str) else type(value).__name__),
)
def test_catalog_errors_are_classified_by_meaning(error: Exception, means: str) -> None:
    found = {"away": is_unavailable(error), "unauthorized": is_unauthorized(error), "gone": is_gone(error)}
    assert [meaning for meaning, is_so in found.items() if is_so] == [meaning for meaning in (means,) if meaning]
