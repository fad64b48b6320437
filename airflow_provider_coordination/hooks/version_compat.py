"""What this Airflow has and an older one, which this package supports too, has not."""

from __future__ import annotations

from airflow import __version__
from packaging.version import Version

HAS_ASSET_STATE_STORE = Version(__version__).release >= (3, 3)
"""Whether tasks can leave values with their assets, for people to see (AIP-103)."""
