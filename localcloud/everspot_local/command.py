"""The settings that `everspot-local up` passes to the daemon.

The module imports none of the emulators, so that the command starts fast.
"""

from dataclasses import dataclass
from pathlib import Path

from everspot_local.options import DELAYS, DISTURBANCES, Options


@dataclass(frozen=True)
class Command:
    """The daemon's settings, passed as one JSON argument."""

    state_dir: str
    port: int
    region: str
    scale: float
    seed: int
    boot_command: tuple[str, ...] | None
    data_dir: str | None
    iam_enforce: bool
    lenient: bool
    quotas: dict[str, float]
    delays: dict[str, str]
    disturbances: dict[str, str]
    script: str | None
    trace: str | None
    cloud: str = "aws"
    epoch: int | None = None
    kubernetes: str | None = None
    """The folder of the programs of a Kubernetes beside the cloud; None for none."""

    def options(self) -> Options:
        """Convert the settings to those of a local cloud."""
        return Options(
            state_dir=Path(self.state_dir),
            region=self.region,
            scale=self.scale,
            seed=self.seed,
            boot_command=tuple(self.boot_command) if self.boot_command else None,
            data_dir=Path(self.data_dir) if self.data_dir else None,
            iam_enforce=self.iam_enforce,
            lenient=self.lenient,
            quotas=self.quotas,
            delays=DELAYS[self.cloud].changed(self.delays),
            disturbances=DISTURBANCES[self.cloud].changed(self.disturbances) if self.disturbances else None,
            cloud=self.cloud,
            epoch=self.epoch,
        )
