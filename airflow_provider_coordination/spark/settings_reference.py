"""Where the settings of a job lie until its driver has read them, once.

That is a file: in a folder for its owner alone, in the working directory of a driver on YARN, or mounted from a Secret
of Kubernetes. Elsewhere it is an object in a folder that Airflow and the cluster share. Such a folder keeps what was
deleted, in versions, copies and backups, and others may read it. So the object is sealed, and its key, made for this
object alone, travels apart from it, in the arguments of the driver: the folder and the arguments each say nothing, and
once the object is deleted nothing says anything. A seal is bound to the job's owner, and the instant in it cannot be
changed.

The seal takes Python's standard library alone, as a driver has no other library for sure: SHAKE-256 of the key makes
the stream that hides the text, HMAC-SHA-256 authenticates it with the owner. Each key is used once.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access

log = logging.getLogger(__name__)

KEY_BYTES = 32
MAC_BYTES = 32
KEY = re.compile(r"(.+)#([A-Za-z0-9_-]{43})", re.DOTALL)
"""A reference to sealed settings: where they lie, and their key as base64 for URLs."""


@dataclass(frozen=True, kw_only=True)
class SettingsReference:
    """What a driver finds its settings by.

    :param uri: the path of a file; with a key, the path or URI of a sealed object.
    :param key: the key of the seal; None for a file that is not sealed.
    """

    uri: str
    key: bytes | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, text: str) -> SettingsReference:
        """Return the reference that `to_text` made, or that of a file by its path."""
        found = KEY.fullmatch(text)
        return cls(uri=text) if found is None else cls(uri=found[1], key=base64.urlsafe_b64decode(f"{found[2]}="))

    @classmethod
    def sealed(cls, uri: str) -> SettingsReference:
        """Return a reference to an object that is to be written, with a new key."""
        return cls(uri=uri, key=secrets.token_bytes(KEY_BYTES))

    def to_text(self) -> str:
        """Return it as an argument of the driver, the key included."""
        return self.uri if self.key is None else f"{self.uri}#{base64.urlsafe_b64encode(self.key).decode().rstrip('=')}"

    def read(self, owner: str) -> str:
        """Return what the settings say.

        :param owner: the job that a seal must be of.
        :raises ConfigurationError: if they are not there, or the seal is broken, another job's, or of another key.
        :raises CoordinationError: if what they lie on does not answer.
        """
        if self.key is None:
            try:
                return Path(self.uri).read_text(encoding="utf-8")
            except OSError as error:
                raise ConfigurationError(f"ingest settings {self.uri}: cannot be read: {error.strerror}") from None
        return unseal(self._sealed(), self.key, owner, self.uri).decode()

    def write(self, text: str, owner: str, access: Access = DEFAULT_ACCESS) -> None:
        """Write settings, sealed.

        :param owner: the job that they are of.
        :param access: how the object is reached.
        :raises CoordinationError: if it cannot be written.
        """
        from airflow_provider_coordination.spark.filesystems import open_files

        assert self.key is not None
        files, path = open_files(self.uri, access)
        try:
            files.write(path, seal(text.encode(), self.key, owner))
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


def seal(text: bytes, key: bytes, owner: str) -> bytes:
    """Return a text that can be read with the key alone.

    :param key: 32 random bytes that seal nothing else.
    :param owner: whom it is for.
    """
    hidden = _hidden(text, key)
    return _mac(hidden, key, owner) + hidden


def unseal(sealed: bytes, key: bytes, owner: str, uri: str) -> bytes:
    """Return the text in a seal.

    :param uri: where it lies, for errors.
    :raises ConfigurationError: if it is damaged, was sealed with another key, or for another owner.
    """
    mac, hidden = sealed[:MAC_BYTES], sealed[MAC_BYTES:]
    if not hmac.compare_digest(mac, _mac(hidden, key, owner)):
        raise ConfigurationError(
            f"ingest settings {uri}: they were not made for job {owner!r} and the key that this driver was given, or "
            "are damaged; give the application the arguments that were made for it"
        )
    return _hidden(hidden, key)


def _hidden(text: bytes, key: bytes) -> bytes:
    stream = hashlib.shake_256(b"settings: stream" + key).digest(len(text))
    return (int.from_bytes(text) ^ int.from_bytes(stream)).to_bytes(len(text))


def _mac(hidden: bytes, key: bytes, owner: str) -> bytes:
    subkey = hashlib.sha3_256(b"settings: seal" + key).digest()
    named = owner.encode()
    return hmac.digest(subkey, len(named).to_bytes(8) + named + hidden, "sha256")
