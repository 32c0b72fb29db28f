"""Settings of a local cloud, read without moto, so that the command answers fast."""

import sys
from dataclasses import dataclass, field
from pathlib import Path

from everspot_local.market.delays import Delays


@dataclass(frozen=True)
class Options:
    """Settings of a local cloud.

    `state_dir`: logs and instances' folders. `boot_command`: what an instance runs; None runs none at all.
    `data_dir`: folder of datasets that instances read. `iam_enforce`: refuse what a role's policies do not allow.
    `lenient`: accept what AWS would refuse, throttle or tell late. `quotas`: values by quota code, where they differ.
    """

    state_dir: Path
    region: str = "us-east-1"
    scale: float = 12.0
    seed: int = 7
    boot_command: tuple[str, ...] | None = (sys.executable, "-m", "everspot_train.agent.main")
    data_dir: Path | None = None
    iam_enforce: bool = False
    lenient: bool = False
    quotas: dict[str, float] = field(default_factory=dict)
    delays: Delays = field(default_factory=Delays)
