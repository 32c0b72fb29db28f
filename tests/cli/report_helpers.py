"""What tests of the report share: its moment, the list prices of its instances, and the report itself."""

from datetime import UTC, datetime

import pytest

AS_OF = "2026-03-01T15:00:00Z"
T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)
LISTED = {"m6i.large": 0.096, "c6i.large": 0.085, "m7i.large": 0.1008, "t3.small": 0.0208}


def report_of(world, *arguments):
    answer = world.run("--json", "report", "--as-of", AS_OF, *arguments)
    assert answer.code == 0, answer.err
    return answer.json


def dollars(*parts):
    """Sum of (seconds, dollars an hour)."""
    return pytest.approx(sum(seconds * usd for seconds, usd in parts) / 3600, abs=1e-6)
