"""The shell environment for work with the local cloud.

It does not touch the user's own Pulumi home, stacks or credentials.
"""

import os
import sys
from pathlib import Path

from everspot_local.address import Address
from everspot_local.market.clock import CLOCK_VARIABLE
from everspot_local.providers import owner

PASSPHRASE = "local"  # noqa: S105 - the stacks of a cloud that forgets everything


def project_root(start: Path) -> Path:
    """Return the folder of `Pulumi.yaml` at or above a folder, or that folder itself."""
    return next((p for p in (start, *start.parents) if (p / "Pulumi.yaml").is_file()), start)


def variables(address: Address, state_dir: Path, root: Path) -> dict[str, str]:
    """Return the environment, PATH included. `root`: the project's folder, which holds `.everspot/`."""
    backend = state_dir / "pulumi"
    backend.mkdir(parents=True, exist_ok=True)
    toolchain = root / ".everspot" / "toolchain"
    first = [toolchain / "bin", toolchain / "plugins", Path(sys.executable).parent]
    inherited = [p for p in os.environ.get("PATH", os.defpath).split(os.pathsep) if p and Path(p) not in first]
    return {
        "PATH": os.pathsep.join([*map(str, first), *inherited]),
        **owner(address.cloud, address.endpoint, address.region),
        CLOCK_VARIABLE: address.clock,
        **({"KUBECONFIG": address.kubeconfig} if address.kubeconfig else {}),
        "PULUMI_BACKEND_URL": f"file://{backend}",
        "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
        "PULUMI_HOME": str(root / ".everspot" / "pulumi-home"),
        "PULUMI_SKIP_UPDATE_CHECK": "1",
    }
