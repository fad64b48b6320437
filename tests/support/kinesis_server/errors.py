"""The errors of the service."""

from __future__ import annotations


class ApiError(Exception):
    """An error of the API.

    :param code: as the API names it, such as `ResourceNotFoundException`.
    :param message: for people.
    :param status: of the HTTP answer.
    """

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status


class ConnectionCutError(Exception):
    """The connection ends before the request is served."""


def not_found(what: str) -> ApiError:
    return ApiError("ResourceNotFoundException", f"{what} not found.")


def invalid(message: str) -> ApiError:
    return ApiError("InvalidArgumentException", message)


def in_use(message: str) -> ApiError:
    return ApiError("ResourceInUseException", message)


def throttled(message: str) -> ApiError:
    return ApiError("ProvisionedThroughputExceededException", message)


def limit_exceeded(message: str) -> ApiError:
    return ApiError("LimitExceededException", message)


def validation(message: str) -> ApiError:
    return ApiError("ValidationException", message)
