"""Where the settings of a job are stored until its driver reads them, once.

Mostly they are a file: in a folder that only its owner can read, in the working directory of a driver on YARN, or
mounted from a Kubernetes Secret. Otherwise they are an object in a folder that Airflow and the cluster share. Such a
folder may keep deleted objects in versions, copies and backups, and others may be able to read it. So the object is
sealed, and its key, made for this object only, travels separately in the arguments of the driver. Neither the folder
nor the arguments reveal the settings alone, and the key is useless once the object is deleted. The seal is a Fernet
token of `cryptography`: without the key, nobody can read or change the content, which includes the job's owner and the
instant at which the settings expire.
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
"""A reference to sealed settings: their URI, and their key as URL-safe base64."""


@dataclass(frozen=True, kw_only=True)
class SettingsReference:
    """The reference by which a driver finds its settings.

    :param uri: the path of a file; with a key, the path or URI of a sealed object.
    :param key: the key of the sealed object; None for a file that is not sealed.
    """

    uri: str
    key: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, text: str) -> SettingsReference:
        """Return the reference that `to_text` made, or the reference to a file for a path."""
        found = SEALED.fullmatch(text)
        return cls(uri=text) if found is None else cls(uri=found[1], key=found[2])

    @classmethod
    def sealed(cls, uri: str) -> SettingsReference:
        """Return a reference to an object that is to be written, with a new key."""
        from cryptography.fernet import Fernet

        return cls(uri=uri, key=Fernet.generate_key().decode())

    def to_text(self) -> str:
        """Return the reference as an argument of the driver, including the key."""
        return self.uri if self.key is None else f"{self.uri}#{self.key}"

    def read(self) -> str:
        """Return the settings as text.

        :raises ConfigurationError: if they do not exist, are damaged, or were sealed with another key.
        :raises CoordinationError: if their filesystem is unavailable.
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
                "damaged; start the application with the arguments of its own job"
            ) from None

    def write(self, text: str, access: Access = DEFAULT_ACCESS) -> None:
        """Write settings, sealed.

        :param access: the credentials for the object.
        :raises CoordinationError: if the object cannot be written.
        """
        from airflow_provider_coordination.spark.filesystems import open_files

        assert self.key is not None
        files, path = open_files(self.uri, access)
        try:
            files.write(path, _fernet(self.key).encrypt(text.encode()))
        except OSError as error:
            raise CoordinationError(f"ingest settings {self.uri}: cannot be written: {error}") from None

    def delete(self, access: Access = DEFAULT_ACCESS) -> None:
        """Delete the settings, if that is possible here.

        If it is not, the party that mounted the file or wrote the object removes it.

        :param access: the credentials for an object.
        """
        try:
            if self.key is None:
                Path(self.uri).unlink(missing_ok=True)
            else:
                delete_object(self.uri, access)
        except (OSError, CoordinationError) as error:
            log.info("the settings in %s could not be deleted; their writer removes them: %s", self.uri, error)

    def _sealed(self) -> bytes:
        from airflow_provider_coordination.spark.filesystems import open_files

        files, path = open_files(self.uri, DEFAULT_ACCESS)
        try:
            return files.read(path)
        except FileNotFoundError:
            raise ConfigurationError(
                f"ingest settings {self.uri} do not exist: a driver has already read them, or they expired; run the "
                "task again to write new ones"
            ) from None
        except PermissionError as error:
            raise ConfigurationError(
                f"ingest settings {self.uri}: the driver may not read them: {error}; allow its role to read and delete "
                "objects in this folder"
            ) from None
        except OSError as error:
            raise CoordinationError(f"ingest settings {self.uri}: cannot be read: {error}") from None


def delete_object(uri: str, access: Access) -> None:
    """Delete a sealed object, if it exists.

    :raises OSError: if it cannot be deleted.
    :raises ConfigurationError: if no filesystem supports its URI.
    """
    from airflow_provider_coordination.spark.filesystems import open_files

    files, path = open_files(uri, access)
    files.delete(path)


def _fernet(key: str) -> Fernet:
    try:
        from cryptography.fernet import Fernet
    except ImportError:
        raise ConfigurationError(
            "the driver's Python has no module 'cryptography', which is needed to open sealed settings: install it "
            "there"
        ) from None
    return Fernet(key)
