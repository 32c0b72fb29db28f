"""The suite's own plan: which files are begun first, and by what `make test` hands them out."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_longest_files_come_first_and_stay_there() -> None:
    conftest = (ROOT / "tests/conftest.py").read_text()
    for name in ("LONGEST", "TOGETHER"):
        named = re.search(rf"^{name} = \(([^)]*)\)", conftest, re.MULTILINE)
        assert named is not None
        folders = re.findall(r'"(\w+)"', named[1])
        assert folders and [folder for folder in folders if not (ROOT / "tests" / folder).is_dir()] == []
    # Left to itself pytest-xdist begins with the files of the most tests, which are the quickest here.
    assert "--dist loadfile --no-loadscope-reorder" in (ROOT / "Makefile").read_text()
