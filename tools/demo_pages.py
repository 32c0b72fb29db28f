"""Run the demonstration and save what it shows as static files: `make demo-pages` writes docs/demo.

The terminal's text, the report and the web UI's pages are those of one run. Paths of this machine are replaced.
"""

import html
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs/demo"
TERMINAL = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>make demo · Everspot</title>
<link rel="stylesheet" href="report.css">
</head>
<body>
<main><h1>make demo</h1><pre>{text}</pre></main>
</body>
</html>
"""


def main() -> int:
    """Write the files; returns the demonstration's exit code."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "demo"
        command = [sys.executable, "-m", "everspot_local.demo", "--out", str(out)]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
        print(done.stdout, end="")
        if done.returncode:
            return done.returncode
        shutil.rmtree(TARGET, ignore_errors=True)
        shutil.copytree(out / "pages", TARGET)
        (TARGET / "report.html").write_text(_neutral((out / "report.html").read_text(), out))
        text = html.escape(_neutral(done.stdout, out))
        (TARGET / "terminal.html").write_text(TERMINAL.format(text=f"$ make demo\n{text}"))
    return 0


def _neutral(text: str, out: Path) -> str:
    return text.replace(str(out), ".everspot/demo").replace(f"{ROOT}/", "")


if __name__ == "__main__":
    sys.exit(main())
