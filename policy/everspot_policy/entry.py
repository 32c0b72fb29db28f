"""Starts the program `everspot-policy`, or says which extra is missing."""

import sys

from everspot_core import extras


def main() -> None:
    """Check the extra, then serve the engine, or answer a question of its own."""
    extras.check("everspot-policy", "policy")
    if sys.argv[1:2] == ["cost"]:
        from everspot_policy import cost

        cost.main(sys.argv[2:])
        return
    from everspot_policy import pack

    pack.main()
