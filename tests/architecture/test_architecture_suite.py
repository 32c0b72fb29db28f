"""The suite's own plan: which files are begun first, and by what `make test` hands them out."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_longest_files_come_first_and_stay_there() -> None:
    assert [folder for folder in named("LONGEST") if not (ROOT / "tests" / folder).is_dir()] == []
    files = [str(path.relative_to(ROOT / "tests")) for path in (ROOT / "tests").rglob("test_*.py")]
    assert [names for names in named("TOGETHER") if not any(file.startswith(names) for file in files)] == []
    # Left to itself pytest-xdist begins with the files of the most tests, which are the quickest here.
    assert "--dist loadfile --no-loadscope-reorder" in (ROOT / "Makefile").read_text()


def named(plan: str) -> list[str]:
    """What a plan of tests/conftest.py names."""
    found = re.search(rf"^{plan} = \(([^)]*)\)", (ROOT / "tests/conftest.py").read_text(), re.MULTILINE)
    assert found is not None and found[1]
    return re.findall(r'"([\w/]+)"', found[1])
