"""Lets the tests of this folder import `workload_helpers`, which tests of the plan in `tests/core` use as well."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "core"))
