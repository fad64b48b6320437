"""What this Airflow has and an older one, which this package supports too, has not."""

from __future__ import annotations

from airflow import __version__

HAS_ASSET_STATE_STORE = tuple(int(part) for part in __version__.split(".")[:2]) >= (3, 3)
"""Whether tasks can leave values with their assets, for people to see (AIP-103)."""
