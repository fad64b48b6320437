"""Every error that this package raises on purpose, under one base class.

Losing a lease is an expected event and has its own class. An unavailable store has its own class too: it is not the
same as a missing partition.
"""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


class CoordinationError(Exception):
    """The base of every error of this package."""


class ConfigurationError(CoordinationError):
    """A setting is wrong. Retrying does not help; a user must correct it."""


class SettingsTakenError(ConfigurationError):
    """Another driver has already used the settings of a job, and they can be used only once."""


class SourceError(CoordinationError):
    """A source cannot be read."""


class StoreUnavailableError(CoordinationError):
    """The store is unavailable, so its contents are unknown."""


class UninitializedCoordinatorError(CoordinationError):
    """A coordinator was used before `initialize()`."""


class PartitionNotFoundError(CoordinationError):
    """The store does not contain the partition."""


class PartitionNotOwnedError(CoordinationError):
    """This owner does not hold the partition's lease, or has lost it."""


class PartitionUpdateError(CoordinationError):
    """The store refused a conditional write: the stored partition has another version than the one that was read."""


class NamesClaimedError(CoordinationError):
    """Names that a supplier found free are now claimed by a partition of another source. Check the names again."""


class SupplierBusyError(CoordinationError):
    """Another worker runs the source's supplier and holds its lease, so this worker's supplier did not run."""


class PartitionStatusError(CoordinationError):
    """The requested action does not apply to a partition in this status."""


class ProgressChangedError(CoordinationError):
    """The stored progress is not the progress that the new one is based on. The lease is still held."""


class ProgressError(CoordinationError):
    """A partition's stored progress is not a JSON object, or the new progress is not JSON or too large."""


class AcknowledgmentError(ConfigurationError):
    """The request does not apply to this acknowledgment set. Retrying does not help."""


class AcknowledgmentSetNotFoundError(AcknowledgmentError):
    """The source has no such acknowledgment set."""


class SupervisionError(CoordinationError):
    """The request does not apply to the supervisor in its current state. Retrying does not help."""


class SupervisorNotFoundError(SupervisionError):
    """The source has no supervisor."""


class SupervisedElsewhereError(CoordinationError):
    """Another supervisor process holds the lease of the source."""


def result_or_raise(result: T | Exception) -> T:
    """Return a result that may be an error.

    :raises Exception: the result, if it is an error.
    """
    if isinstance(result, Exception):
        raise result
    return result
