"""Installed distributions for a test: metadata and entry points only."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def install(folder: Path, name: str, group: str, points: Mapping[str, str], *, version: str = "1.0") -> None:
    """Install a distribution into a folder that is on the path.

    :param group: the group of its entry points.
    :param points: `module:attribute` by name.
    """
    metadata = folder / f"{name}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = "".join(f"{point} = {where}\n" for point, where in points.items())
    (metadata / "entry_points.txt").write_text(f"[{group}]\n{lines}")
