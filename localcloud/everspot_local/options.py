"""Settings of a local cloud. The module imports none of the emulators, so that the command starts fast."""

import sys
from dataclasses import dataclass, field, fields
from datetime import timedelta
from pathlib import Path

from everspot_local.market.delays import Delays
from everspot_local.market.disturbances import CALM, DisturbanceRates

LOCAL_CLOUDS = ("aws", "gcp")
REGIONS = {"aws": "us-east-1", "gcp": "europe-west4"}
DELAYS = {
    "aws": Delays(),
    # Compute Engine, "Spot VMs": prices change at most once a day, and 30 seconds may be all the time that there is.
    "gcp": Delays(walk=timedelta(days=1), notice=timedelta(seconds=30)),
}
"""How long things take by themselves, where nobody says otherwise."""
DISTURBANCES = {"aws": DisturbanceRates(), "gcp": CALM}
"""The default disturbances by the services. A lenient cloud has no disturbances."""
DOORS = {
    "aws": ("--metadata", "AWS_EC2_METADATA_SERVICE_ENDPOINT"),
    # Compute Engine's images name the metadata server in /etc/hosts, and its groups check their members' health.
    "gcp": (
        "--metadata", "GCE_METADATA_HOST", "--metadata-name", "metadata.google.internal", "--health", "EVERSPOT_HEALTH"
    ),
}  # fmt: skip
"""Options of the programs that boot an image (`contained` and `vm` of `everspot_local.machines`). Through them a
machine and its cloud reach each other: above all the variable of the cloud's SDKs with the address of the machine's
metadata service."""
SCALE = 12.0
"""Market seconds in a real second, by default."""
EMULATED_SCALE = 0.25
"""The same where machines are emulated: all that a machine is allowed, such as the time of a notice or a shutdown, is
four times as long, as such machines are some thirty times as slow."""
ONE_PRICE = {"aws": False, "gcp": True}
"""Whether a Spot price is a region's and not a zone's. Compute Engine, "Spot VMs pricing": a table by region."""


def emulated_delays(cloud: str) -> dict[str, str]:
    """Return the delays where machines are emulated: what a machine need not keep up with takes its real time.

    They boot as soon as they run: how long that takes is theirs.
    """
    usual = DELAYS[cloud]
    names = [field.name for field in fields(Delays) if field.name not in ("notice", "shutdown")]
    seconds = {name: getattr(usual, name).total_seconds() * EMULATED_SCALE for name in names}
    return {name: f"{value:g}s" for name, value in {**seconds, "boot": seconds["pending"]}.items()}


@dataclass(frozen=True)
class Options:
    """Settings of a local cloud.

    Attributes:
        state_dir: folder of logs and of the instances' folders.
        region: the only region; empty for the cloud's default.
        scale: market seconds in a real second.
        seed: of depths and prices.
        boot_command: command that each instance runs; None for no processes.
        data_dir: folder of datasets that instances read.
        iam_enforce: whether a role may do only what its policies allow.
        lenient: whether the cloud's rules, rate limits and delays of visibility are off.
        quotas: values by quota code, where they differ from the defaults.
        delays: of the cloud's own actions; None for the cloud's defaults.
        disturbances: what the services do wrong; None for the cloud's defaults.
        cloud: one of `LOCAL_CLOUDS`.
        epoch: real seconds since 1970 at which market time starts; None for now. Clouds of one scale and epoch keep the
            same time.
    """

    state_dir: Path
    region: str = ""
    scale: float = SCALE
    seed: int = 7
    boot_command: tuple[str, ...] | None = (sys.executable, "-m", "everspot_train.agent.main")
    data_dir: Path | None = None
    iam_enforce: bool = True
    lenient: bool = False
    quotas: dict[str, float] = field(default_factory=dict)
    delays: Delays | None = None
    disturbances: DisturbanceRates | None = None
    cloud: str = "aws"
    epoch: int | None = None

    def __post_init__(self) -> None:
        if self.cloud not in LOCAL_CLOUDS:
            raise ValueError(f"there is no cloud {self.cloud!r} here; one of {', '.join(LOCAL_CLOUDS)}")
        object.__setattr__(self, "region", self.region or REGIONS[self.cloud])

    @property
    def times(self) -> Delays:
        """Return the delays at the beginning."""
        return self.delays or DELAYS[self.cloud]

    @property
    def rates(self) -> DisturbanceRates:
        """Return the disturbances at the beginning."""
        return self.disturbances or (CALM if self.lenient else DISTURBANCES[self.cloud])
