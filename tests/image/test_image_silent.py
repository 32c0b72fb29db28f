"""A machine that has booted, and whose agent never reports: the scheduler's boot deadline."""

import sys
from datetime import timedelta
from pathlib import Path

import pytest
from e2e_helpers import LIMITS
from everspot_core.costs.ledger import FaultKind
from everspot_local.options import DOORS
from image_cluster import ImageCluster
from image_machine import BOOT

pytestmark = [pytest.mark.timeout(900), pytest.mark.nightly]  # no boot deadline is shorter than a minute
BY_ROLE = Path(__file__).with_name("boot_by_role.py")


class SilentCluster(ImageCluster):
    """One agent's machine, and the scheduler, a process."""

    limits = LIMITS.model_copy(update={"boot_deadline": timedelta(minutes=1)})


def test_the_scheduler_reports_a_machine_whose_agent_never_does(tmp_path: Path, image: Path) -> None:
    dropin = tmp_path / "added/etc/systemd/system/everspot-agent.service.d/tests.conf"
    dropin.parent.mkdir(parents=True)
    dropin.write_text("[Service]\nExecStart=\nExecStart=/usr/bin/sleep infinity\n")
    boot = (sys.executable, str(BY_ROLE), *BOOT, "--image", str(image), "--add", str(tmp_path / "added"), *DOORS["aws"])
    with SilentCluster(tmp_path / "cloud", boot=boot) as live:
        silent = live.until(lambda: next(iter(live.store.faults.scan()), None))
        assert live.store.faults.scan()[silent].value.kind is FaultKind.NEVER_REPORTED
        assert live.machine(silent).show("everspot-agent.service", "ActiveState") == "active"
        assert silent not in live.store.instances.names()
