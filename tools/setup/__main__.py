"""`make setup`: all that the demo needs, below `.venv` and `.everspot`. Runs on the standard library alone.

Arguments: the clouds whose providers are installed, `aws` if none is named; `forge` for a forge to review upon,
`kubernetes` for the control plane of the local Kubernetes, `provider-kubernetes` for Pulumi's provider, and `libraries`
for users' own storage libraries.
"""

import sys

if sys.version_info < (3, 11, 4):
    sys.exit(
        "setup: Python 3.11.4 or newer is needed, this is %s (%s). Name another one: make setup PYTHON=python3.12"  # noqa: UP031
        % (sys.version.split()[0], sys.executable)
    )

from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import plan  # only after the version check may newer syntax be read

sys.exit(plan.main(sys.argv[1:]))
