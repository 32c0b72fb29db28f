"""The tables of localcloud/refusals-aws.md name tests that exist.

`--lenient` accepts what EC2 refuses.
"""

import re
from pathlib import Path
from typing import Any

import pytest
from everspot_local.cloud import LocalCloud
from everspot_local.options import Options
from localcloud_refusals import root


def test_a_lenient_cloud_takes_it_all(module_cloud: LocalCloud, kit_class: Any, tmp_path: Path) -> None:
    module_cloud.close()  # there is one local cloud in a process
    options = Options(state_dir=tmp_path, scale=120.0, boot_command=None, lenient=True)
    with LocalCloud(options) as cloud, pytest.MonkeyPatch.context() as patch:
        kit = kit_class(cloud, patch)
        kit.template(MetadataOptions={"HttpPutResponseHopLimit": 65})
        for _ in range(6):
            kit.ec2.delete_vpc_endpoints(VpcEndpointIds=["vpce-0"])
        (instance_id,) = kit.spot(template=kit.template(**root(VolumeSize=1)))
        assert kit.ec2.describe_instances(InstanceIds=[instance_id])["Reservations"]


HERE = Path(__file__).parent
FILES = HERE.parent.glob("localcloud*/test_*.py")  # behaviour of both clouds is tested with Google Cloud's
TESTS = set(re.findall(r"^def test_(\w+)", "".join(f.read_text(encoding="utf-8") for f in FILES), re.MULTILINE))


def rows() -> list[str]:
    """Every row of every table of refusals."""
    text = (HERE.parents[1] / "localcloud/refusals-aws.md").read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line.startswith("| ") and not line.startswith(("| ---", "| rule"))]


def test_the_tables_hold_every_rule() -> None:
    assert len(rows()) > 60


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.split("|")[1].strip()[:40])
def test_every_rule_names_a_test_that_exists(row: str) -> None:
    evidence = row.split("|")[-2]
    references = re.findall(r"`([\w/.]+)(…?)`", evidence)
    assert references
    for name, cut in references:
        if name.endswith(".py"):
            assert (HERE.parents[1] / name).exists()
        else:
            assert any(test.startswith(name) if cut else test == name for test in TESTS)
