"""The README as the package index shows it, which has neither the repository's files nor diagrams.

Links to files lead to the repository at the release's tag, which `Source` in `[project.urls]` names. Without it they
become the file's name, and pictures are left out. `hatchling` runs this when it builds from the repository.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?!https?://)(?P<path>[^)\s]+)\)")
DIAGRAM = re.compile(r"^```mermaid\n.*?^```\n\n?", re.DOTALL | re.MULTILINE)


def published(text: str, source: str | None, version: str) -> str:
    """Return a README without links that work only in the repository.

    :param text: the README, in Markdown.
    :param source: the URL of the repository, whose files are below `/blob/<tag>/`, or None.
    :param version: the release, whose tag is `v<version>`.
    :return: the README with absolute links, or with names of files in their place.
    """

    def replace(link: re.Match[str]) -> str:
        picture, words, path = link["picture"], link["text"], link["path"]
        if source is None:
            return "" if picture else words
        folder = "raw" if picture else "blob"
        return f"{picture}[{words}]({source.rstrip('/')}/{folder}/v{version}/{path})"

    return LINK.sub(replace, DIAGRAM.sub("", text))


class PublishedReadme(MetadataHookInterface):
    """Sets `readme` of the project's metadata."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set `readme` from `README.md`.

        :param metadata: the table `[project]` of `pyproject.toml`, with the version.
        """
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        source = metadata.get("urls", {}).get("Source")
        metadata["readme"] = {"content-type": "text/markdown", "text": published(text, source, metadata["version"])}
