"""Adds folders to `sys.path`, so that tests can import shared helpers."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
