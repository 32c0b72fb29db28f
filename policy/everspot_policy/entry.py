"""Starts the program `everspot-policy`, or says which extra is missing."""

from everspot_core import extras


def main() -> None:
    """Check the extra, then serve."""
    extras.check("everspot-policy", "policy")
    from everspot_policy import pack

    pack.main()
