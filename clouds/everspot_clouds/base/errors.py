"""The kinds of failure of calls to a cloud, by the possible reactions to them."""

from collections.abc import Iterable, Mapping
from enum import StrEnum


class Trouble(StrEnum):
    """Kinds of failure, by the possible reactions to them."""

    THROTTLED = "throttled"  # ask less often
    CAPACITY = "capacity"  # the pool has none: try another
    QUOTA = "quota"  # the account's limit is reached: try another family, notify a person
    CREDENTIALS = "credentials"  # a person must act
    REQUEST = "request"  # we asked for something wrong: a bug or a wrong setting
    TRANSIENT = "transient"  # try again


class CloudError(Exception):
    """A cloud's refusal in words for people. `fix`: how to fix it."""

    def __init__(self, message: str, trouble: Trouble, fix: str = "") -> None:
        super().__init__(message)
        self.trouble, self.fix = trouble, fix


class StillPending(Exception):
    """The cloud accepted a launch whose outcome is not known yet. The caller repeats the call."""


class NotOffered(CloudError):
    """The cloud does not offer this."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Trouble.REQUEST)


def fixes(cloud: str, *, more: str, log_in: str) -> dict[Trouble, str]:
    """Return the fix for each kind of failure. `cloud`: its name for people; `more`: the web page for raising quotas;
    `log_in`: the command that logs in."""
    return {
        Trouble.THROTTLED: f"{cloud} is asked too often: try again in a minute",
        Trouble.CAPACITY: "no pool has capacity: add instance types or zones to the fleet; launches are tried again",
        Trouble.QUOTA: f"ask for more: {more}",
        Trouble.CREDENTIALS: f"log in again ({log_in}), or have the missing permission granted",
        Trouble.REQUEST: "the cloud does not accept these settings: correct them and run pulumi up",
        Trouble.TRANSIENT: "try again in a minute",
    }


class Codes:
    """A cloud's error codes by kind of failure, compared regardless of spelling. `prefixes`: beginnings of codes that
    say nothing about the kind, in lower case."""

    def __init__(self, kinds: Mapping[Trouble, Iterable[str]], prefixes: Iterable[str] = ()) -> None:
        self._prefixes = tuple(prefixes)
        self._kinds = {self.plain(code): kind for kind, codes in kinds.items() for code in codes}

    def plain(self, code: str) -> str:
        """Return a code in lower case, without prefix, dashes and underscores."""
        plain = code.lower()
        for prefix in self._prefixes:
            plain = plain.removeprefix(prefix)
        return plain.replace("-", "").replace("_", "")

    def kind(self, code: str) -> Trouble | None:
        """Return the kind of failure of a code, in any of its spellings; None if no table has it."""
        return self._kinds.get(self.plain(code))

    def among(self, code: str, codes: Iterable[str]) -> bool:
        """Return whether a code is one of several, in any of its spellings."""
        plain = self.plain(code)
        return any(plain == self.plain(candidate) for candidate in codes)
