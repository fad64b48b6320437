"""What the site needs beside Markdown: links to files of the repository, which are not part of it.

A link becomes the file's name, and the example DAGs that a page links to are shown whole at its end.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./[^)\s]+\)")
EXAMPLE = re.compile(r"\]\(\.\./(dags/\w+\.py)\)")


def on_page_markdown(markdown: str, **kwargs: Any) -> str:
    """Return a page's text without links that lead out of the manual; `mkdocs` calls this for each page."""
    examples = dict.fromkeys(EXAMPLE.findall(markdown))
    shown = [f"## Example: {name}\n\n```python\n{(REPOSITORY / name).read_text()}```" for name in examples]
    return "\n\n".join([OUTSIDE.sub(r"`\1`", markdown), *shown])
