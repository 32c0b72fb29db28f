"""Lets the tests of this folder import what others share: a live cluster, and the page as a process."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(Path(__file__).parent), str(TESTS / "e2e"), str(TESTS / "cli")]
