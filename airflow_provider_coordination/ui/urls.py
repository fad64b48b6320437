"""Where the routes are, as a browser sees them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from urllib.parse import urlsplit

from airflow.sdk import conf

from airflow_provider_coordination.ui.plugin import URL_PREFIX

FOLDER = Path(__file__).with_name("static")
"""Where the modules of the pages are."""
EDITION_LENGTH = 16


def base_url() -> str:
    """Return the address of Airflow, without a slash at its end; empty where the configuration does not say."""
    return str(conf.get("api", "base_url", fallback="") or "").rstrip("/")


def path_prefix() -> str:
    """Return the path below which the routes are, with that of Airflow itself where it has one."""
    return urlsplit(base_url()).path + URL_PREFIX


def edition() -> str:
    """Return what tells the modules of the pages, as they are, from those of another version."""
    digest = hashlib.sha256()
    for file in sorted(file for file in FOLDER.rglob("*") if file.is_file()):
        digest.update(file.relative_to(FOLDER).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:EDITION_LENGTH]
