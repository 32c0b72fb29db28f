"""A picture of a review's comment, as a forge shows it: Markdown → HTML with a stylesheet → headless Chromium → PNG.

    python tools/comment_picture.py COMMENT.md PICTURE.png

Needs Chromium (`chromium` or `google-chrome` on PATH), and markdown-it and pillow from the group dev.
"""

import html
import io
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from markdown_it import MarkdownIt
from PIL import Image, ImageChops

WIDTH, TALLEST, COLOURS = 920, 2400, 224
STYLE = """
body { margin: 0; padding: 24px; background: #fff; color: #1f2328; width: 872px;
  font: 14px/1.5 "Noto Sans", "DejaVu Sans", "Noto Color Emoji", sans-serif; }
.box { border: 1px solid #d1d9e0; border-radius: 6px; overflow: hidden; }
.head { background: #f6f8fa; border-bottom: 1px solid #d1d9e0; padding: 8px 16px; color: #59636e; }
.head b { color: #1f2328; } .body { padding: 16px; }
h3 { font-size: 1.25em; } h4 { font-size: 1em; } h3, h4 { margin: 16px 0 12px; } h3:first-child { margin-top: 0; }
table { border-collapse: collapse; margin-bottom: 16px; } th, td { border: 1px solid #d1d9e0; padding: 6px 13px; }
tr:nth-child(2n) td { background: #f6f8fa; }
code { background: #818b981f; border-radius: 6px; padding: .2em .4em; }
code, pre { font: 85%/1.45 "DejaVu Sans Mono", monospace; }
pre { background: #f6f8fa; border-radius: 6px; padding: 16px; white-space: pre-wrap; overflow-wrap: anywhere; }
pre code { background: none; padding: 0; font-size: 100%; }
ul { padding-left: 2em; } details { margin-bottom: 16px; } a { color: #0969da; }
.gone { color: #82071e; background: #ffebe9; } .new { color: #116329; background: #dafbe1; } .other { color: #953800; }
"""
KINDS = {"-": "gone", "+": "new", "!": "other"}


def page(comment: str) -> str:
    """The HTML of a comment, with all that can be opened open."""
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table"])
    body = re.sub(r"<!--.*?-->", "", parser.render(comment), flags=re.DOTALL).replace("<details>", "<details open>")
    body = re.sub(r'(?<=<pre><code class="language-diff">).*?(?=</code>)', _coloured, body, flags=re.DOTALL)
    author = '<div class="head"><b>github-actions</b> commented · edited</div>'
    head = f'<!doctype html><meta charset="utf-8"><style>{STYLE}</style>'
    return f'{head}<div class="box">{author}<div class="body">{body}</div></div>'


def _coloured(match: "re.Match[str]") -> str:
    lines = html.unescape(match[0]).splitlines()
    return "\n".join(f'<span class="{KINDS.get(line[:1], "same")}">{html.escape(line)}</span>' for line in lines)


def shot(text: str) -> Image.Image:
    """A picture of a page, without the empty part below it."""
    browser = next((path for name in ("chromium", "google-chrome") if (path := shutil.which(name))), None)
    if browser is None:
        sys.exit("a picture needs Chromium on PATH")
    with TemporaryDirectory() as folder:
        source, target = Path(folder, "comment.html"), Path(folder, "comment.png")
        source.write_text(text, encoding="utf-8")
        flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={folder}/profile",
        ]
        size = f"--window-size={WIDTH},{TALLEST}"
        command = [browser, *flags, size, f"--screenshot={target}", source.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        picture = Image.open(io.BytesIO(target.read_bytes())).convert("RGB")
    edge = ImageChops.difference(picture, Image.new("RGB", picture.size, "white")).getbbox()
    return picture.crop((0, 0, WIDTH, min(TALLEST, (edge[3] if edge else 0) + 24)))


def main(comment: Path, picture: Path) -> None:
    """Write the picture of a comment."""
    shot(page(comment.read_text(encoding="utf-8"))).quantize(COLOURS).save(picture, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
