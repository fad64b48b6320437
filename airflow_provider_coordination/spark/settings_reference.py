"""Where the settings of a job lie until its driver has read them, once.

That is a file: in a folder for its owner alone, in the working directory of a driver on YARN, or mounted from a Secret
of Kubernetes. Elsewhere it is an object in a folder that Airflow and the cluster share. Such a folder keeps what was
deleted, in versions, copies and backups, and others may read it. So the object is sealed, and its key, made for this
object alone, travels apart from it, in the arguments of the driver: the folder and the arguments each say nothing, and
once the object is deleted nothing says anything. The seal is a Fernet token of `cryptography`: who has no key can
neither read nor change what is in it, which includes the job's owner and the instant in which the settings expire.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

log = logging.getLogger(__name__)

SEALED = re.compile(r"(.+)#([A-Za-z0-9_-]{43}=)", re.DOTALL)
"""A reference to sealed settings: where they lie, and their key as base64 for URLs."""


@dataclass(frozen=True, kw_only=True)
class SettingsReference:
    """What a driver finds its settings by.

    :param uri: the path of a file; with a key, the path or URI of a sealed object.
    :param key: the key of the seal; None for a file that is not sealed.
    """

    uri: str
    key: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, text: str) -> SettingsReference:
        """Return the reference that `to_text` made, or that of a file by its path."""
        found = SEALED.fullmatch(text)
        return cls(uri=text) if found is None else cls(uri=found[1], key=found[2])

    @classmethod
    def sealed(cls, uri: str) -> SettingsReference:
        """Return a reference to an object that is to be written, with a new key."""
        from cryptography.fernet import Fernet

        return cls(uri=uri, key=Fernet.generate_key().decode())

    def to_text(self) -> str:
        """Return it as an argument of the driver, the key included."""
        return self.uri if self.key is None else f"{self.uri}#{self.key}"

    def read(self) -> str:
        """Return what the settings say.

        :raises ConfigurationError: if they are not there, or the seal is broken or of another key.
        :raises CoordinationError: if what they lie on does not answer.
        """
        if self.key is None:
            try:
                return Path(self.uri).read_text(encoding="utf-8")
            except OSError as error:
                raise ConfigurationError(f"ingest settings {self.uri}: cannot be read: {error.strerror}") from None
        fernet = _fernet(self.key)
        from cryptography.fernet import InvalidToken

        try:
            return fernet.decrypt(self._sealed()).decode()
        except InvalidToken:
            raise ConfigurationError(
                f"ingest settings {self.uri}: they were not sealed with the key that this driver was given, or are "
                "damaged; give the application the arguments that were made for it"
            ) from None

    def write(self, text: str, access: Access = DEFAULT_ACCESS) -> None:
        """Write settings, sealed.

        :param access: how the object is reached.
        :raises CoordinationError: if it cannot be written.
        """
        from airflow_provider_coordination.spark.filesystems import open_files

        assert self.key is not None
        files, path = open_files(self.uri, access)
        try:
            files.write(path, _fernet(self.key).encrypt(text.encode()))
        except OSError as error:
            raise CoordinationError(f"ingest settings {self.uri}: cannot be written: {error}") from None

    def delete(self, access: Access = DEFAULT_ACCESS) -> None:
        """Delete them; who mounted a file that cannot be deleted here removes it, and who wrote an object does so too.

        :param access: how an object is reached.
        """
        try:
            if self.key is None:
                Path(self.uri).unlink(missing_ok=True)
            else:
                delete_object(self.uri, access)
        except (OSError, CoordinationError) as error:
            log.info("the settings in %s are left to who put them there: %s", self.uri, error)

    def _sealed(self) -> bytes:
        from airflow_provider_coordination.spark.filesystems import open_files

        files, path = open_files(self.uri, DEFAULT_ACCESS)
        try:
            return files.read(path)
        except FileNotFoundError:
            raise ConfigurationError(
                f"ingest settings {self.uri}: there are none: they serve one driver, which has read them, or they were "
                "removed once they had expired; run the task again, which makes others"
            ) from None
        except PermissionError as error:
            raise ConfigurationError(
                f"ingest settings {self.uri}: the driver may not read them: {error}; its role needs to read and delete "
                "objects in this folder"
            ) from None
        except OSError as error:
            raise CoordinationError(f"ingest settings {self.uri}: cannot be read: {error}") from None


def delete_object(uri: str, access: Access) -> None:
    """Delete a sealed object, if it is there.

    :raises OSError: if that is not possible.
    :raises ConfigurationError: if nothing reaches it.
    """
    from airflow_provider_coordination.spark.filesystems import open_files

    files, path = open_files(uri, access)
    files.delete(path)


def _fernet(key: str) -> Fernet:
    try:
        from cryptography.fernet import Fernet
    except ImportError:
        raise ConfigurationError(
            "the Python of the driver has no module 'cryptography', which opens sealed settings: install it there"
        ) from None
    return Fernet(key)
