"""`override` marks a method that a base class or protocol declares, with its documentation.

Python has it from 3.12 on, and a Spark cluster may lack `typing_extensions`. So it is for type checkers alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from typing_extensions import override
else:
    Method = TypeVar("Method", bound=Callable)

    def override(method: Method) -> Method:
        """Return the method."""
        return method


__all__ = ["override"]
