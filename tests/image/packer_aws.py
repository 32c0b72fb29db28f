"""The bake of the template for AWS on the local AWS. It changes what Debian's Packer and the local cloud lack.

Not as the template has it: the settings that this Packer is too old for, and SSH to the private address in place of
Session Manager.
"""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from packer_bake import Bake, run_packer
from packer_template import block

TEMPLATE = "everspot.pkr.hcl"
PUT_PARAMETER = """import sys, boto3
assert sys.argv[1:3] == ["ssm", "put-parameter"] and sys.argv[-1] == "--overwrite"
words = dict(zip(sys.argv[3:-1:2], sys.argv[4:-1:2]))
ssm = boto3.client("ssm", region_name=words["--region"])
ssm.put_parameter(Name=words["--name"], Type=words["--type"], Value=words["--value"], Overwrite=True)
"""
"""The one call that `publish.sh` makes, for machines without the AWS CLI."""


def bake_on_aws(folder: Path, ec2: Any, endpoint: str, region: str, parameter: str, failure: Callable[[], str]) -> Bake:
    """Bake an image whose id is in a parameter then. `ec2`: a client; the others: as of `run_packer`."""
    ec2.register_image(
        Name="base 1", Architecture="x86_64", VirtualizationType="hvm", EnaSupport=True,
        RootDeviceName="/dev/sda1", BlockDeviceMappings=[{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 35}}],
    )  # fmt: skip
    folder.mkdir()
    if shutil.which("aws") is None:
        (folder / "aws").write_text(f"#!{sys.executable}\n{PUT_PARAMETER}")
        (folder / "aws").chmod(0o755)
    variables = {
        "region": region, "base_image_name": "base *", "base_image_owner": "self", "ssh_interface": "private_ip",
        "image_parameter": parameter, "manifest": folder / "manifest.json",
    }  # fmt: skip
    return run_packer(
        folder, TEMPLATE, lambda text: _adapted(text, endpoint), variables, ("aws", endpoint, region), failure
    )


def _adapted(text: str, endpoint: str) -> str:
    """Return the template for the local cloud; the base image is found by the template's filters, in the form that a
    source had before there were data sources."""
    data = block(text, 'data "amazon-ami" "base" {')
    filters = data.partition("region      = var.region\n")[2].rpartition("}")[0]
    text = text.replace("  source_ami    = data.amazon-ami.base.id\n", f"  source_ami_filter {{\n{filters}  }}\n")
    local = f'  custom_endpoint_ec2 = "{endpoint}"\n  skip_region_validation = true\n  skip_metadata_api_check = true\n'
    opening = 'source "amazon-ebs" "everspot" {\n'
    assert opening in text and "source_ami_filter" in text
    return text.replace(opening, opening + local)
