"""The facts that an environment's name states."""

import re

PRODUCTION = frozenset({"prod", "production", "prd", "live"})
DEVELOPMENT = frozenset({"dev", "development", "test", "testing", "sandbox", "staging", "stage", "local"})


def _words(name: str) -> set[str]:
    return set(re.split(r"[^a-z0-9]+", name.lower()))


def is_production(name: str) -> bool:
    """Return whether a name such as `aws-prod` is that of a production environment."""
    return bool(_words(name) & PRODUCTION) and not is_development(name)


def is_development(name: str) -> bool:
    """Return whether a name such as `aws-dev` is that of an environment for trying things."""
    return bool(_words(name) & DEVELOPMENT)
