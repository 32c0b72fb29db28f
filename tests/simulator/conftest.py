"""Adds this folder and `tests/core` to `sys.path`, so that tests can import their helpers."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "core"))
sys.path.insert(0, str(Path(__file__).parent))
