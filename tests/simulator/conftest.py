"""Lets the tests of this folder import what they share, some of it with the tests of the plan in `tests/core`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "core"))
sys.path.insert(0, str(Path(__file__).parent))
