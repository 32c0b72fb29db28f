"""Adds folders to `sys.path`, so that tests can import shared helpers: a live cluster, and the web UI as a process."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(Path(__file__).parent), str(TESTS / "e2e"), str(TESTS / "cli")]
