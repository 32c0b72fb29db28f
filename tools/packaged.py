#!/usr/bin/env python3
"""Copy what `everspot init` writes into new projects to where the wheel takes it from: cli/everspot_cli/project/.

packaged.py            copy
packaged.py --check    exit with 1 if a copy is not what it is a copy of
"""

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGED = ROOT / "cli/everspot_cli/project"
WORKFLOWS = ("apply.yml", "drift.yml", "review.yml")
"""The workflows of an environment; the other workflows are this repository's own."""


def pairs() -> Iterator[tuple[Path, Path]]:
    """Each file and its copy. A program's copy ends in .txt: it is no module of the package."""
    yield ROOT / "Pulumi.yaml", PACKAGED / "Pulumi.yaml"
    yield ROOT / "stacks/rules.yaml", PACKAGED / "rules.yaml"
    for path in sorted((ROOT / "stacks").glob("*.py")):
        yield path, PACKAGED / "program" / f"{path.name}.txt"
    for name in WORKFLOWS:
        yield ROOT / ".github/workflows" / name, PACKAGED / "workflows" / name
    for path in sorted((ROOT / ".github/everspot").glob("*.sh")):
        yield path, PACKAGED / "scripts" / path.name


def main() -> None:
    """Copy or check."""
    expected = {copy: path.read_bytes() for path, copy in pairs()}
    existing = {path for path in PACKAGED.rglob("*") if path.is_file()}
    if "--check" in sys.argv[1:]:
        stale = sorted(
            str(path.relative_to(ROOT))
            for path in existing | expected.keys()
            if path not in existing or path.read_bytes() != expected.get(path)
        )
        if stale:
            sys.exit(f"not up to date: {', '.join(stale)}; run tools/packaged.py")
        return
    for path in existing - expected.keys():
        path.unlink()
    for copy, content in expected.items():
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(content)


if __name__ == "__main__":
    main()
