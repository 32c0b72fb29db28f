"""The kinds of failure of calls to a cloud, by what can be done about them."""

from enum import StrEnum


class Trouble(StrEnum):
    """Kinds of failure, by what can be done about them."""

    THROTTLED = "throttled"  # ask less often
    CAPACITY = "capacity"  # the pool has none: try another
    QUOTA = "quota"  # the account may have no more: try another family, tell a person
    CREDENTIALS = "credentials"  # a person must act
    REQUEST = "request"  # we asked for something wrong: a bug or a wrong setting
    TRANSIENT = "transient"  # try again


class CloudError(Exception):
    """A cloud's refusal in words for people. `fix`: what to do about it."""

    def __init__(self, message: str, trouble: Trouble, fix: str = "") -> None:
        super().__init__(message)
        self.trouble, self.fix = trouble, fix


class NotOffered(CloudError):
    """The cloud does not offer this."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Trouble.REQUEST)
