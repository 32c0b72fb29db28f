"""Stands in for Google's sign-in: finds the account that a bearer token belongs to.

There are three kinds of callers: the project's owner, with the token that `everspot-local env` prints; service
accounts, with tokens of the metadata servers; and who comes from another cloud, by a pool. Tokens say nothing by
themselves, and keep real time.
"""

import secrets
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from everspot_local.gcp.answers import ApiError
from everspot_local.gcp.iam.boundaries import Boundary

OWNER_TOKEN = "everspot-local"  # noqa: S105 - it opens nothing but the local cloud
OWNER = "owner@everspot-local.example"
LIFE = timedelta(hours=1)
RENEW_BEFORE = timedelta(minutes=5)
_HINT = (
    "Expected OAuth 2 access token, login cookie or other valid authentication credential. See "
    "https://developers.google.com/identity/sign-in/web/devconsole-project."
)


@dataclass(frozen=True)
class ApiCaller:
    """The caller of a request.

    Attributes:
        email: of the service account or of the owner; empty for a caller from another cloud.
        instance: id of the instance that the token was issued to.
        principals: names in policies of a caller from another cloud.
        boundary: the limits of a downscoped token; None for a token without limits.
    """

    email: str
    instance: str = ""
    principals: tuple[str, ...] = ()
    boundary: Boundary | None = None

    @property
    def owner(self) -> bool:
        """Return whether the caller is the project's owner, who may do everything."""
        return self.email == OWNER

    @property
    def member(self) -> str:
        """Return the caller's name in policies; of several names its own."""
        return self.members[0]

    @property
    def members(self) -> tuple[str, ...]:
        """Return all names that policies may use for the caller."""
        return self.principals or (self._policy_member,)

    @property
    def _policy_member(self) -> str:
        return f"{'user' if self.owner else 'serviceAccount'}:{self.email}"


NOBODY = ApiCaller("", principals=("allUsers",))
"""The caller of a request without a token, where that is allowed."""


@dataclass(frozen=True)
class Token:
    """An access token and when it expires."""

    text: str
    caller: ApiCaller
    expires: datetime


class Sessions:
    """The tokens that were issued."""

    def __init__(self) -> None:
        self._tokens: dict[str, Token] = {}
        self._latest: dict[ApiCaller, Token] = {}

    def token(self, caller: ApiCaller, now: datetime) -> Token:
        """Return the token that is kept for a caller, as metadata servers do: the same until five minutes before it
        expires. `now`: real time."""
        token = self._latest.get(caller)
        if token is None or token.expires - now < RENEW_BEFORE:
            token = self._latest[caller] = self.issue(caller, now)
        return token

    def issue(self, caller: ApiCaller, now: datetime, life: timedelta = LIFE) -> Token:
        """Create another token for a caller. `now`, `life`: real time."""
        token = Token(f"ya29.{secrets.token_urlsafe(40)}", caller, now + life)
        self._tokens[token.text] = token
        return token

    def downscoped(self, text: str, boundary: Boundary, now: datetime) -> Token | None:
        """Create a token that is limited by a boundary and ends with its source, the token `text`. Return None if the
        source is no valid token of a service account, or is limited itself. `now`: real time."""
        source = self._tokens.get(text)
        if source is None or source.expires <= now or not source.caller.email or source.caller.boundary is not None:
            return None
        return self.issue(replace(source.caller, boundary=boundary), now, source.expires - now)

    def caller(self, authorization: str, now: datetime) -> ApiCaller:
        """Return the caller of a request, by its header. `now`: real time.

        Raises:
            ApiError: 401 for a token that is missing, unknown or past its end.
        """
        kind, _, text = authorization.partition(" ")
        if kind.lower() != "bearer" or not text:
            raise ApiError(401, "required", f"Request is missing required authentication credential. {_HINT}")
        if text == OWNER_TOKEN:
            return ApiCaller(OWNER)
        token = self._tokens.get(text)
        if token is None or token.expires <= now:
            raise ApiError(401, "authError", f"Request had invalid authentication credentials. {_HINT}")
        return token.caller

    def forget(self) -> None:
        """Revoke all tokens."""
        self._tokens.clear()
        self._latest.clear()
