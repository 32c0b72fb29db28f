"""What `everspot-local up --cloud kubernetes` chooses. The module imports nothing that takes time to be imported."""

from dataclasses import dataclass
from pathlib import Path

from everspot_local.environment import project_root
from everspot_local.kubernetes.programs import have_programs, node_command
from everspot_local.running import fail

NAME, MACHINES = "kubernetes", "aws"
"""The word of `--cloud`, and the cloud of the nodes."""
SCALE = 1.0
"""Kubernetes and Karpenter keep the time of this machine."""


@dataclass(frozen=True)
class KubernetesChoice:
    """A Kubernetes beside the local cloud.

    Attributes:
        programs: The folder of its programs.
        boot_command: What the machines of its nodes run.
    """

    programs: str
    boot_command: tuple[str, ...]


def choose(
    state_dir: Path, time_scale: float | None, machines: str, boot_command: str, no_processes: bool
) -> KubernetesChoice:
    """Check the other options of `up`, and return what it starts."""
    if time_scale not in (None, SCALE):
        fail("--time-scale: Kubernetes and Karpenter keep the time of this machine, so that it is 1")
    if machines != "process" or boot_command or no_processes:
        fail("--cloud kubernetes: its machines boot a node, and run no other --machines or --boot-command")
    folder = project_root(Path.cwd()) / ".everspot" / "toolchain" / "kubernetes"
    if not have_programs(folder):
        fail(f"--cloud kubernetes: {folder} lacks its programs: make setup WITH=kubernetes builds them")
    return KubernetesChoice(str(folder), node_command(state_dir / "kubernetes"))
