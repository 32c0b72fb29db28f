"""The entry point of `everspot-scheduler`: it names missing packages in one sentence before anything needs them."""

import sys

from everspot_core.extras import check


def main() -> None:
    """Run the program."""
    check("everspot-scheduler", "scheduler")
    from everspot_scheduler.main import main as run

    sys.exit(run())
