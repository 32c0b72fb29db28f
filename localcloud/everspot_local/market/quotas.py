"""An account's quotas: how much of each kind it may run, with the present values.

Which quotas there are, and which instance counts towards which, is the cloud's to say.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from everspot_core.jobs.records import Market


@dataclass(frozen=True)
class Quota:
    """One quota, and its value in an account that has not changed it. `service`: the cloud's name of what it belongs
    to."""

    code: str
    service: str
    name: str
    value: float


class Quotas:
    """The account's quotas with their values now.

    Args:
        catalogue: every quota there is.
        find_code: code of the quota that an instance type of a market counts towards; None if it counts towards none.
        values: by quota code, where they differ from the defaults.

    Raises:
        ValueError: for a code that is unknown, or a value that is below 0 or no number.
    """

    def __init__(
        self,
        catalogue: Iterable[Quota],
        find_code: Callable[[str, Market], str | None],
        values: dict[str, float] | None = None,
    ) -> None:
        self._quotas = {quota.code: quota for quota in catalogue}
        self._find_code = find_code
        self._values: dict[str, float] = {}
        for code, value in (values or {}).items():
            self.set(code, value)

    def set(self, code: str, value: float) -> None:
        """Change a value from now on; running instances stay.

        Raises:
            ValueError: for a code that is unknown, or a value that is below 0 or no number.
        """
        if code not in self._quotas:
            raise ValueError(f"unknown quota {code!r}; there are {', '.join(self._quotas)}")
        if not float(value) >= 0:  # nor what is no number
            raise ValueError(f"quota {code} must be a number of at least 0, not {value}")
        self._values[code] = float(value)

    def value(self, quota: Quota) -> float:
        """Return a quota's value now."""
        return self._values.get(quota.code, quota.value)

    def find(self, instance_type: str, market: Market) -> Quota | None:
        """Return the quota that an instance counts towards, or None."""
        code = self._find_code(instance_type, market)
        return None if code is None else self._quotas[code]

    def all(self, service: str) -> list[Quota]:
        """Return a service's quotas."""
        return [quota for quota in self._quotas.values() if quota.service == service]
