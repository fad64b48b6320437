"""The URLs of the routes, as a browser sees them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from urllib.parse import urlsplit

from airflow_provider_coordination.hooks.configuration import URL_PREFIX, base_url

FOLDER = Path(__file__).with_name("static")
"""The folder of the pages' JavaScript modules."""
EDITION_LENGTH = 16


def path_prefix() -> str:
    """Return the path of the routes, including the path of Airflow itself if it has one."""
    return urlsplit(base_url()).path + URL_PREFIX


def edition() -> str:
    """Return a digest of the pages' modules, which distinguishes versions."""
    digest = hashlib.sha256()
    for file in sorted(file for file in FOLDER.rglob("*") if file.is_file()):
        digest.update(file.relative_to(FOLDER).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:EDITION_LENGTH]
