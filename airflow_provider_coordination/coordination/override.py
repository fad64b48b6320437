"""`override` marks a method that a base class or protocol declares, with its documentation.

Python has it from 3.12 on, and a Spark cluster may lack `typing_extensions`. So it is for type checkers alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import override
else:

    def override(method: object) -> object:
        """Return the method."""
        return method


__all__ = ["override"]
