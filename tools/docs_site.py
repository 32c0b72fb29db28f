"""A hook of MkDocs: links that lead out of `docs/`, to source files, become their paths as text."""

import re
from pathlib import PurePosixPath
from typing import Any

_LINK = re.compile(r"\[([^\]\[]+)\]\(((?:\.\./)+[^)\s]*)\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return a page's Markdown without links that the site cannot follow."""
    depth = len(PurePosixPath(page.file.src_uri).parent.parts)

    def replace(link: re.Match[str]) -> str:
        text, target = link[1], link[2]
        climbs = len(re.findall(r"\.\./", target))
        if climbs <= depth:
            return link[0]
        path = target.replace("../", "").partition("#")[0]
        return text if path.strip("/") in text else f"{text} (`{path}`)"

    return _LINK.sub(replace, markdown)
