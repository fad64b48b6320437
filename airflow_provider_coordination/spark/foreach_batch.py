"""The settings of the sink that calls a user's function."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ForeachBatchSettings:
    """A function that is called with the rows of each delivery.

    :param function: `module:function`.
    :param staging_path: the folder where rows wait for the call.
    """

    function: str
    staging_path: str

    @property
    def location(self) -> str:
        """The function, and that it is called at least once, for display."""
        return f"at-least-once://{self.function}"
