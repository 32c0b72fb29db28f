"""The settings of the file that the environment names."""

from collections.abc import Mapping
from pathlib import Path

from everspot_policy.settings import LARGEST, PolicySettings, read

SETTINGS = "EVERSPOT_POLICY_SETTINGS"


def settings(environ: Mapping[str, str]) -> PolicySettings:
    """Return the settings of the file that an environment variable names.

    Raises:
        everspot_core.validation.problems.BadInputs: with everything that is wrong in it.
        OSError, UnicodeDecodeError: if it cannot be read.
    """
    path = environ.get(SETTINGS, "")
    if not path:
        return PolicySettings()
    with Path(path).absolute().open(encoding="utf-8") as file:
        return read(file.read(LARGEST + 1), path)
