"""Adds this folder to `sys.path`, so that tests can import the tables of cases."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
