"""The settings of a group's host, and the seal of its members' settings.

The settings of a member's job contain secrets, and travel through the store, which others may read. So they are sealed
with a key that every Airflow worker derives from Airflow's own Fernet key and the group's name. The host gets this key
in its own settings, which travel as those of any job. The seal is a Fernet token of `cryptography`.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, field, replace
from datetime import datetime

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.groups import MemberRequest
from airflow_provider_coordination.coordination.texts import compress, decompress
from airflow_provider_coordination.settings import write_settings
from airflow_provider_coordination.spark.outcome import Outcome
from airflow_provider_coordination.spark.settings import ApplicationSettings, IngestSettings, checked_settings

KEY_BYTES = 32


def group_key(fernet_key: str, group: str) -> str:
    """Return the key of a group, as URL-safe base64.

    :param fernet_key: Airflow's `[core] fernet_key`; the first one if there are several.
    :param group: the group's name.
    """
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    info = f"airflow-provider-coordination group {group}".encode()
    derived = HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=info).derive(fernet_key.strip().encode())
    return base64.urlsafe_b64encode(derived).decode()


def key_id(key: str) -> str:
    """Return what distinguishes a key from others, and reveals nothing of it."""
    return hashlib.sha256(f"id {key}".encode()).hexdigest()[:8]


def seal(settings: IngestSettings, key: str) -> str:
    """Return the settings of a member's job as a text that only the holders of the key can read or change."""
    from cryptography.fernet import Fernet

    return Fernet(key).encrypt(compress(write_settings(settings)).encode()).decode()


def unseal(sealed: str, key: str, owner: str, now: datetime) -> IngestSettings:
    """Return the checked settings that `seal` sealed.

    :param owner: the job that they must belong to.
    :param now: the present instant; settings that expired before it are refused.
    :raises ConfigurationError: if they are damaged, sealed with another key, invalid, expired, or another job's.
    """
    from cryptography.fernet import Fernet, InvalidToken

    what = f"request of job {owner!r}"
    try:
        values = decompress(Fernet(key).decrypt(sealed.encode()).decode())
    except (InvalidToken, ValueError):
        raise ConfigurationError(
            f"{what}: its settings were not sealed with the key of this group, or are damaged; let the supervisor "
            "start another job"
        ) from None
    return checked_settings(IngestSettings, what, values, owner, now)


def refusal(group: str, outcome: Outcome) -> Outcome:
    """Return the outcome of a job that could not run, because its group's host could not.

    :param outcome: the outcome of the host.
    """
    reason = outcome.error or f"exit code {outcome.exit_code}"
    return replace(outcome, error=f"the Spark application of group {group!r} ended: {reason}", summary={})


@dataclass(kw_only=True)
class GroupSettings(ApplicationSettings):
    """The settings of a group's host.

    :param group: the group's name.
    :param secret_key: the key of the members' settings, as `group_key` returns it.
    :param application: a digest of each argument that Spark got for the host's application, by its name.
    """

    group: str
    secret_key: str = field(repr=False)
    application: dict[str, str] = field(default_factory=dict)

    def check_member(self, request: MemberRequest) -> None:
        """Check that a member asks for the application that its host has.

        :raises ConfigurationError: naming the arguments that differ.
        """
        mine, theirs = self.application, request.application
        if differing := sorted(name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name)):
            raise ConfigurationError(
                f"the application of group {self.group!r} was started with other values of {', '.join(differing)} than "
                f"source {request.source!r} has: give all members of the group the same values, or this one another "
                "'group'; an application without a job ends after ten minutes"
            )
