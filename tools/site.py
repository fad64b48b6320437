"""What the site needs beside Markdown, which is written to be read as it stands too.

Links to files of the repository, which is not part of the site, become the file's name; the example DAGs that a page
links to are shown whole at its end. Links that are named after a page's file get the title of what they lead to.
Code is coloured, and tables can be read on a phone.
"""

from __future__ import annotations

import re
from html import escape
from itertools import cycle
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped]

REPOSITORY = Path(__file__).resolve().parents[1]
DOCS = REPOSITORY / "docs"
OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./([^)\s]+)\)")
EXAMPLE = re.compile(r"dags/(\w+)\.py")
PAGE = re.compile(r"\[([\w-]+\.md)\]\((\1)(?:#([\w-]+))?\)")
TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig, **kwargs: Any) -> Files:
    """Add the colours of code, and mermaid; `mkdocs` calls this once."""
    colours = HtmlFormatter(style="default").get_style_defs(".rst-content .highlight")
    files.append(File.generated(config, "colours.css", content=colours))
    for script in (REPOSITORY / ".tools" / "mermaid").glob("*.js"):  # `tools/mermaid.sh` fetches it if it can
        files.append(File.generated(config, "mermaid.js", abs_src_path=str(script)))
        config.extra_javascript.append("mermaid.js")
    return files


def on_page_markdown(markdown: str, **kwargs: Any) -> str:
    """Return a page's text without links that lead out of the manual; `mkdocs` calls this for each page."""
    examples: dict[str, None] = {}

    def inside(link: re.Match[str]) -> str:
        name, path = link.groups()
        if not (example := EXAMPLE.fullmatch(path)):
            return f"`{name.strip('`')}`"
        examples[example[1]] = None
        return f"[{name}](#example-{example[1]})"

    text = PAGE.sub(lambda link: f"[{_title(link[2], link[3])}]({link[2]}{f'#{link[3]}' if link[3] else ''})", markdown)
    text = OUTSIDE.sub(inside, text)
    return "\n\n".join([text, *map(_example, examples)])


def on_post_page(output: str, **kwargs: Any) -> str:
    """Return a page with its tables made readable; `mkdocs` calls this for each page."""
    return TABLE.sub(_readable, output)


def _example(name: str) -> str:
    source = (REPOSITORY / "dags" / f"{name}.py").read_text()
    return f"## Example: dags/{name}.py {{#example-{name}}}\n\n```python\n{source}```"


def _readable(table: re.Match[str]) -> str:
    """Return a table whose cells name their columns, which phones show, and whose long names may be broken."""
    text = re.sub(r"<code>([\w.]{28,})</code>", lambda name: re.sub(r"[._]", r"\g<0><wbr>", name[0]), table[0])
    labels = [escape(re.sub(r"<.*?>", "", each)) for each in re.findall(r"<th[^>]*>(.*?)</th>", text, re.DOTALL)]
    of_each_cell = cycle(labels)
    # A bar within a cell is escaped in Markdown, also in code, where the site would show that.
    return re.sub(r"<td", lambda cell: f'<td data-label="{next(of_each_cell)}"', text).replace(r"\|", "|")


def _title(page: str, anchor: str | None) -> str:
    """Return the title of a page, or of the part of it that an anchor names."""
    title, *headings = HEADING.findall(re.sub(r"^```.*?^```", "", (DOCS / page).read_text(), flags=re.M | re.S))
    part = next((each for each in headings if anchor and each.lower().replace(" ", "-") == anchor), None)
    return f"{title}: {part}" if part else title
