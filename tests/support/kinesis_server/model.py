"""Botocore's model of the API: the parameters of each call."""

from __future__ import annotations

from functools import cache
from typing import Any

import botocore.session
from botocore.model import ServiceModel
from botocore.validate import ParamValidator


@cache
def kinesis_model() -> ServiceModel:
    """Return the model of the service."""
    return botocore.session.get_session().get_service_model("kinesis")


@cache
def input_shape(operation: str) -> Any:
    """Return the model of an operation's parameters.

    :raises botocore.model.OperationNotFoundError: if there is no such operation.
    """
    return kinesis_model().operation_model(operation).input_shape


def complaints(operation: str, request: dict[str, Any]) -> str | None:
    """Return what is wrong with the parameters of a call, in the words of boto3; None if nothing is."""
    errors = ParamValidator().validate(request, input_shape(operation))
    return str(errors.generate_report()) if errors.has_errors() else None
