"""Files of `everspot init` for regions without catalogue prices, previewed by the real engine: the monthly cost equals
a sum by hand from the region's price lists."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from everspot_clouds.estimating import estimated
from everspot_clouds.price_files import project_prices, project_tables
from everspot_local.gcp.project import PROJECT
from everspot_review.event_log import EventLog
from everspot_review.events import read_file

from tests.cli.conftest import everspot
from tests.price_lists import GOOGLE_REGIONS, MONTHS, ON_DEMAND, Recorded, google_price_lists

pytestmark = [pytest.mark.engine, pytest.mark.nightly, pytest.mark.timeout(1800)]
PLACES = [("aws", region) for region in sorted(ON_DEMAND)] + [("gcp", region) for region in GOOGLE_REGIONS]


def begin(folder: Path, cloud: str, region: str) -> None:
    """Write a project, with the region's prices."""
    account = "123456789012" if cloud == "aws" else PROJECT
    answers = ["--cloud", cloud, "--account", account, "--region", region, "--team", "vision"]
    with pytest.MonkeyPatch.context() as patch, google_price_lists() as env:
        if cloud == "aws":
            patch.setattr(boto3, "client", lambda service, region_name, config: Recorded(region))
        for name, value in env.items() if cloud == "gcp" else ():
            patch.setenv(name, value)
        done = everspot("init", str(folder), *answers, "--repository", "Org/fleets", "--yes", "--json")
    assert done.code == 0, done.err
    assert (folder / f"prices/{cloud}-{region}.json").is_file()
    (folder / ".venv").symlink_to(sys.prefix)


def previewed(rig: Any) -> EventLog:
    """The event log of a preview of `prod`."""
    log = rig.project / "events.jsonl"
    rig.pulumi("preview", "--color=never", f"--event-log={log}", stack="prod")
    return read_file(log)


@pytest.mark.parametrize(("cloud", "region"), PLACES)
def test_a_previews_month_is_what_the_price_lists_add_up_to(
    tmp_path: Path, on_local_cloud: Callable[..., Any], cloud: str, region: str
) -> None:
    home = tmp_path / "fleets"
    begin(home, cloud, region)
    with on_local_cloud(home, cloud, "--region", region) as rig:
        settings = home / "stacks/Pulumi.prod.yaml"
        content = yaml.safe_load(settings.read_text())
        if cloud == "gcp":
            content["config"]["everspot:cluster"]["imageFamily"] = "everspot"
        else:  # a loopback address has no buckets as host names
            content["config"] |= {"aws:s3UsePathStyle": "true", "aws:skipCredentialsValidation": "true"}
        settings.write_text(yaml.safe_dump(content, sort_keys=False))
        if cloud == "aws":
            image = rig.client("ec2").describe_images(Owners=["self", "amazon"])["Images"][0]["ImageId"]
            rig.client("ssm").put_parameter(Name="/everspot/image/prod", Value=image, Type="String")
        log = previewed(rig)
    with project_prices(project_tables(home)):
        estimate = estimated(log.before(), log.after())
    assert estimate.after is not None and estimate.after.unpriced == () and estimate.unknown == ()
    assert estimate.after.total.expected == pytest.approx(MONTHS[region], rel=0.1)
