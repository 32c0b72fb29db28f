"""A preflight probe of a cluster whose image does not start on its types."""

from pathlib import Path

import pytest
from e2e_elastic import ElasticLive, probe

pytestmark = pytest.mark.timeout(600)


class OtherArchitecture(ElasticLive):
    """A cluster whose image is for x86_64, and whose only type has Arm processors."""

    types = ("c7g.xlarge",)
    zones = ("a",)


def test_an_image_of_another_architecture_is_a_refusal_that_is_not_waited_for(tmp_path: Path) -> None:
    with OtherArchitecture(tmp_path) as live:
        code, checks = probe("--timeout", "9m")
        assert (code, list(checks)) == (1, ["spot: launch", "on-demand: launch"])
        for verdict, detail, _fix in checks.values():
            assert (verdict, "architecture" in detail) == ("fail", True)
        assert live.agents() == {}
