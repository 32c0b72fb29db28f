"""Run the benchmarks: `python -m bench [NAME …]`. Each prints one JSON line per figure beside its limit."""

import importlib
import pkgutil
import sys
from pathlib import Path


def available() -> list[str]:
    """The benchmarks: every module of this folder that is not private."""
    return sorted(m.name for m in pkgutil.iter_modules([str(Path(__file__).parent)]) if not m.name.startswith("_"))


def main(names: list[str]) -> int:
    unknown = sorted(set(names) - set(available()))
    if unknown:
        print(f"no benchmark named {', '.join(unknown)}; there are: {', '.join(available())}", file=sys.stderr)
        return 2
    failed = 0
    for name in names or available():
        failed |= int(bool(importlib.import_module(f"bench.{name}").main()))
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
