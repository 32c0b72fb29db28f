"""The tables of good and bad inputs are modules of their own."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
