"""Which function gets batches."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ForeachBatchSettings:
    """A function that gets the rows of each delivery.

    :param function: `module:function`.
    :param staging_path: the folder where rows wait for the call.
    """

    function: str
    staging_path: str

    @property
    def location(self) -> str:
        """What is called, for people, and how often."""
        return f"at-least-once://{self.function}"
