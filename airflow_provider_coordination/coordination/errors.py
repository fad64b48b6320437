"""Every error this package raises on purpose, under one base class.

Losing a lease is an expected event and has its own class; so has a store that cannot be reached, which is
something else than a row that is not there.
"""

from __future__ import annotations


class CoordinationError(Exception):
    """The base of every error of this package."""


class ConfigurationError(CoordinationError):
    """A setting is wrong, and only a person can put it right: trying again changes nothing."""


class SettingsTakenError(ConfigurationError):
    """The settings of a job have served another driver, and serve one."""


class SourceError(CoordinationError):
    """A source cannot be read."""


class StoreUnavailableError(CoordinationError):
    """The store did not answer, so nothing is known about what it holds."""


class UninitializedCoordinatorError(CoordinationError):
    """A coordinator was used before `initialize()`."""


class PartitionNotFoundError(CoordinationError):
    """The store answered that it has no such partition."""


class PartitionNotOwnedError(CoordinationError):
    """The partition's lease is not, or no longer, held by this owner."""


class PartitionUpdateError(CoordinationError):
    """A conditional write was refused: the stored partition is not the version that was read."""


class NamesClaimedError(CoordinationError):
    """Names that were free when a supplier looked belong to a partition of another source by now: look again."""


class SupplierBusyError(CoordinationError):
    """Another worker is running the source's supplier, and keeps its lease: this worker's did not run."""


class PartitionStatusError(CoordinationError):
    """What a person asks for makes no sense for a partition that stands where this one does."""


class ProgressChangedError(CoordinationError):
    """The stored progress is not the one that a new one was made from; the lease is still held."""


class ProgressError(CoordinationError):
    """A partition's stored progress is not a JSON object, or a new one cannot be stored: not JSON, or too large."""


class AcknowledgmentError(ConfigurationError):
    """What is asked of an acknowledgment set makes no sense for it: trying again changes nothing."""


class AcknowledgmentSetNotFoundError(AcknowledgmentError):
    """The store answered that the source has no such acknowledgment set."""


class SupervisionError(CoordinationError):
    """What is asked of a supervisor makes no sense as it stands: trying again changes nothing."""


class SupervisorNotFoundError(SupervisionError):
    """The store answered that the source has no supervisor."""


class SupervisedElsewhereError(CoordinationError):
    """Somebody else supervises the source, and keeps its lease."""
