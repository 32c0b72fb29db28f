"""Decides whether the local cloud enforces the clouds' own rules: sizes, names, limits, quotas, delays.

It does not contain the rules: each rule is in the module of its service, and calls `strict` first. Every rule is listed
in localcloud/refusals-aws.md with the cloud's own error code, where the cloud documents it, and its test.
"""

from everspot_local.aws import account


def strict() -> bool:
    """Return whether the local cloud refuses what the real one refuses; False after `everspot-local up --lenient`."""
    return not account.current().options.lenient
