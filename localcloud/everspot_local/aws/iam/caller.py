"""The caller of the current request, in whose name a fleet launches."""

import base64
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from moto.ec2.exceptions import EC2ClientError

from everspot_local.aws.iam.policy_language import Call, PolicyDecision, UnknownCondition, decide

log = logging.getLogger(__name__)
FREE = {"sts:GetCallerIdentity"}


@dataclass(frozen=True)
class Denial:
    """A call that is not allowed.

    Attributes:
        call: which.
        explicit: whether a statement denies it, or none allows it.
        policy: the kind of policy that denies it or does not allow it.
    """

    call: Call
    explicit: bool
    policy: str

    @property
    def reason(self) -> str:
        """Return why, in AWS's words (IAM user guide, "Troubleshoot access denied error messages")."""
        if self.explicit:
            return f"with an explicit deny in {'an' if self.policy.startswith('i') else 'a'} {self.policy}"
        return f"because no {self.policy} allows the {self.call.action} action"


@dataclass
class Caller:
    """A principal whose calls are checked against its policies.

    Attributes:
        read: returns the parsed policies.
        bound: returns the permissions boundary, or None.
        session: the session policy of temporary credentials, or None.
    """

    principal: str
    read: Callable[[], list[Mapping[str, Any]]]
    bound: Callable[[], Mapping[str, Any] | None] = lambda: None
    session: Mapping[str, Any] | None = None

    @cached_property
    def _documents(self) -> list[Mapping[str, Any]]:
        return self.read()

    @cached_property
    def _boundary(self) -> Mapping[str, Any] | None:
        return self.bound()

    def _deny(self, call: Call) -> Denial | None:
        """Return the decision of policies, boundary and session policy, if it is no; all of them have to allow a call
        (IAM user guide, "Permissions boundaries for IAM entities", "Session policies")."""
        limits = {"permissions boundary": self._boundary, "session policy": self.session}
        layers = {"identity-based policy": self._documents, **{k: [v] for k, v in limits.items() if v is not None}}
        for kind, documents in layers.items():
            try:
                decision = decide(documents, call)
            except UnknownCondition:
                log.exception("%s is refused", call.action)
                decision = PolicyDecision.IMPLICIT
            if decision is not PolicyDecision.ALLOW:
                return Denial(call, decision is PolicyDecision.DENY, kind)
        return None

    def denied(self, calls: Iterable[Call]) -> Denial | None:
        """Return the first of these calls that the caller may not make; a condition that cannot be evaluated allows
        nothing."""
        denials = (self._deny(call) for call in calls if call.action not in FREE)
        return next((denial for denial in denials if denial is not None), None)


class Unauthorized(EC2ClientError):
    """EC2's error for a denied call, as met: https://github.com/aws/karpenter-provider-aws/issues/6298, and 7370 for a
    denial."""

    def __init__(self, principal: str, denial: Denial) -> None:
        super().__init__("UnauthorizedOperation", unauthorized_text(principal, denial))


def unauthorized_text(principal: str, denial: Denial) -> str:
    """Return EC2's message of a denial. Only EC2 can decode its last part; here that is base64 of JSON."""
    action, resource = denial.call.action, denial.call.resource
    details = {"allowed": False, "explicitDeny": denial.explicit, "action": action, "resource": resource}
    encoded = base64.urlsafe_b64encode(json.dumps(details).encode()).decode()
    return (
        f"You are not authorized to perform this operation. User: {principal} is not authorized to perform: {action} "
        f"on resource: {resource} {denial.reason}. Encoded authorization failure message: {encoded}"
    )


_current: ContextVar[Caller | None] = ContextVar("caller", default=None)


def enter(caller: Caller | None) -> None:
    """Set the caller of the request that this thread carries out; None may do everything."""
    _current.set(caller)


def check(calls: Iterable[Call]) -> None:
    """Refuse what the caller may not do. The market's thread acts without a caller, and may do everything.

    Raises:
        Unauthorized: naming the first call that is not allowed.
    """
    caller = _current.get()
    if caller is not None and (denial := caller.denied(calls)) is not None:
        raise Unauthorized(caller.principal, denial)
