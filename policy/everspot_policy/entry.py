"""Starts the program `everspot-policy`, or says which extra is missing."""

import sys

from everspot_core import extras

HELP = """\
usage: pulumi preview --policy-pack "$(command -v everspot-policy)"
       everspot-policy cost STACK USD

The engine starts this program, asks it for the rules' judgement of each resource, and ends it; `pulumi up` takes the
same option. Started by hand, it writes the port that it listens on, and waits. `cost` judges the most that a month of a
stack is estimated to cost.

EVERSPOT_POLICY_SETTINGS names the file of settings, in full. Without it every rule counts at its own level.
"""


def main() -> None:
    """Check the extra, then serve the engine, or answer a command."""
    extras.check("everspot-policy", "policy")
    if sys.argv[1:2] in (["--help"], ["-h"]):
        sys.stdout.write(HELP)
        return
    if sys.argv[1:2] == ["cost"]:
        from everspot_policy import month_budget

        month_budget.main(sys.argv[2:])
        return
    from everspot_policy import pack

    pack.main()
