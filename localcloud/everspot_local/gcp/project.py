"""Stands in for the one Google Cloud project that the local cloud is, which its services share.

It has one region. It is no global of the process: its users get it as an argument.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from everspot_local.gcp.answers import ApiError
from everspot_local.gcp.callers import ApiCaller, Sessions
from everspot_local.gcp.metadata.identity import Signer
from everspot_local.gcp.rates import Rates
from everspot_local.machines.lifecycle import Machines
from everspot_local.market.clock import stamp
from everspot_local.market.market import LocalMarket
from everspot_local.market.market_log import Journal
from everspot_local.options import Options

PROJECT = "everspot-local"
NUMBER = "100000000001"


@dataclass(frozen=True)
class Need:
    """A permission that a call needs on a resource.

    Attributes:
        permission: its name.
        resource: the part of the resource's URL from `projects/` on.
        list_prefix: of a listing of objects, the prefix of their names.
    """

    permission: str
    resource: str
    list_prefix: str = ""


Needs = Callable[[str, Mapping[str, Any], Mapping[str, Any]], list[Need]]
"""What a call needs before it is carried out, by method, parameters and body."""
Granted = Callable[[ApiCaller, Need], bool]
"""Whether the project's policies give a caller what is needed."""


class InstanceServers(Protocol):
    """The metadata servers of all instances, by the instances' ids."""

    def address(self, instance_id: str) -> str:
        """Return host and port of an instance's server, which is opened on first use."""

    def changed(self, instance_id: str) -> None:
        """Wake requests that wait for a change of an instance's contents."""

    def close(self, instance_id: str) -> None:
        """Close an instance's server."""

    def reset(self) -> None:
        """Close all servers; new ones may be opened."""

    def close_all(self) -> None:
        """Close all servers for good."""


def _no_needs(_method: str, _params: Mapping[str, Any], _body: Mapping[str, Any]) -> list[Need]:
    return []


def _all(_caller: ApiCaller, _need: Need) -> bool:
    return True


def _any_account(_email: str) -> bool:
    return True


def _any_account_id(_email: str) -> str:
    return NUMBER


@dataclass
class Project:
    """The project's settings, its market and machines, and Google's own records of its API calls.

    Attributes:
        endpoint: URL of every service, set once there is a server.
        calls: the journal of API calls.
        needs: returns the needs of a call; none until the identity services exist.
        granted: returns whether a need is granted.
        account_exists: returns whether a service account with this email exists.
        unique_id: returns the number of a service account.
        metadata: the instances' metadata servers.
        signer: of identity tokens.
        resets: called when the project is emptied.
    """

    options: Options
    market: LocalMarket
    machines: Machines
    calls: Journal
    endpoint: str = ""
    sessions: Sessions = field(default_factory=Sessions)
    needs: Needs = _no_needs
    granted: Granted = _all
    account_exists: Callable[[str], bool] = _any_account
    resets: list[Callable[[], None]] = field(default_factory=list)
    metadata: InstanceServers = field(init=False)
    signer: Signer = field(default_factory=Signer)
    unique_id: Callable[[str], str] = _any_account_id

    @property
    def region(self) -> str:
        """Return the name of the only region."""
        return self.market.region

    @property
    def zones(self) -> tuple[str, ...]:
        """Return the names of the region's zones."""
        return self.market.pools.zones

    @property
    def strict(self) -> bool:
        """Return whether the local cloud refuses what Google refuses; False after `everspot-local up --lenient`."""
        return not self.options.lenient

    @cached_property
    def rates(self) -> Rates:
        """Return the request counts of this minute."""
        return Rates(lambda: self.market.clock.now(), lambda: self.market.quotas, NUMBER)

    def enter(self, method: str, params: Mapping[str, Any], body: Mapping[str, Any], caller: ApiCaller) -> None:
        """Record a call, and refuse a caller who may not make it.

        Raises:
            ApiError: 403, if the caller lacks what it needs, or if there were too many calls of the kind this minute.
        """
        if self.strict:
            self.rates.count(method)
        self.require(caller, self.needs(method, params, body), method)

    def require(self, caller: ApiCaller, needs: list[Need], method: str) -> None:
        """Record what a call needs, and refuse a caller who lacks any of it.

        Raises:
            ApiError: 403, naming the first permission that is lacking.
        """
        lacking = (
            [] if caller.owner or not self.options.iam_enforce else [n for n in needs if not self.granted(caller, n)]
        )
        service, _, action = method.partition(".")
        self.calls.write(
            {
                "at": stamp(self.market.clock.now()),
                "principal": caller.member,
                "service": service,
                "action": action,
                "checked": [{"action": need.permission, "resource": need.resource} for need in dict.fromkeys(needs)],
                "allowed": not lacking,
            }
        )
        if lacking:
            raise forbidden(lacking[0], caller, service)

    def reset(self) -> None:
        """Delete everything that was made. The market is reset elsewhere."""
        self.machines.reset()
        self.metadata.reset()
        self.sessions.forget()
        self.calls.restart()
        for each in self.resets:
            each()

    def close(self) -> None:
        """Close everything that waits or listens."""
        self.metadata.close_all()
        self.calls.close()


def forbidden(need: Need, caller: ApiCaller, product: str) -> ApiError:
    """Return Google's message for a missing permission: Compute's, Storage's, or that of the newer APIs."""
    if product == "compute":
        return ApiError(403, "forbidden", f"Required '{need.permission}' permission for '{need.resource}'")
    denied = f"Permission '{need.permission}' denied on resource"
    if product == "storage":
        kind = "object" if "/objects/" in need.resource else "bucket" if "/buckets/" in need.resource else "project"
        caller_name = caller.email or caller.member
        sentence = f"{caller_name} does not have {need.permission} access to the Google Cloud Storage {kind}."
        return ApiError(403, "forbidden", f"{sentence} {denied} (or it may not exist).")
    detail = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "IAM_PERMISSION_DENIED",
        "domain": "iam.googleapis.com",
        "metadata": {"permission": need.permission, "resource": need.resource},
    }
    return ApiError(403, "forbidden", f"{denied} '{need.resource}' (or it may not exist).", details=[detail])
