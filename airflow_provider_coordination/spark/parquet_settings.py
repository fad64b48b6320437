"""What a job knows of a Parquet dataset that it writes to."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_coordination.coordination.errors import ConfigurationError

TARGET_FILE_BYTES = 128 * 2**20


@dataclass(frozen=True, kw_only=True)
class ParquetSettings:
    """The settings of a Parquet dataset.

    :param target_file_bytes: how many landed bytes the batches of a file have at most, where it holds several.
    """

    target_file_bytes: int = TARGET_FILE_BYTES

    def check(self, what: str) -> None:
        """Check every value.

        :param what: the user's object, for errors.
        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        if self.target_file_bytes < 1:
            raise ConfigurationError(
                f"field 'target_file_bytes' of {what} must be at least 1; got {self.target_file_bytes}; with 1 each "
                "batch has a file of its own"
            )
