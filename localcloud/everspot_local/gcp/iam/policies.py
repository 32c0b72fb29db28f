"""Stands in for allow policies: the roles of each member on each resource, their conditions, and when they take effect.

It does not know deny policies, principal access boundaries, folders or organizations; of people and groups it believes
that they exist. Sources (IAM documentation): "Policy" (versions, etags), "Overview of IAM Conditions" (limits, basic
roles), "Access change propagation" (a change takes effect in general within two minutes), "Quotas and limits".
"""

import base64
import copy
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from everspot_local.gcp.iam.conditions import BadExpression, Values, check_expression, is_true
from everspot_local.gcp.iam.predefined import BASIC
from everspot_local.gcp.refusals import aborted, bad

PRINCIPALS = 1500
"""All principals in one policy."""
TITLE = 100
_ANYBODY = ("allUsers", "allAuthenticatedUsers")
_OF_PROJECT = {"projectOwner": "roles/owner", "projectEditor": "roles/editor", "projectViewer": "roles/viewer"}
_MEMBER = re.compile(r"(user|group|serviceAccount):[^@\s]+@[^@\s]+|domain:\S+|deleted:\S+|principal(Set)?://iam\S+")

Policy = dict[str, Any]
EMPTY: Policy = {"version": 1, "etag": "ACAB"}


@dataclass(frozen=True)
class Directory:
    """Looks up the names in a policy.

    Attributes:
        account: returns whether a service account exists.
        permissions: returns a role's permissions, or None for an unknown role.
    """

    account: Callable[[str], bool]
    permissions: Callable[[str], frozenset[str] | None]


@dataclass
class _PolicyHistory:
    """Policies of one resource, each with the time from which it has effect; the last one is what is read."""

    since: list[tuple[datetime, Policy]] = field(default_factory=list)


class Policies:
    """Policies of all resources by their full name, such as `projects/P`. `late`: how long a change takes to have
    effect, in market time."""

    def __init__(self, now: Callable[[], datetime], directory: Directory, project: str, late: timedelta) -> None:
        self._now, self._directory, self._project, self._late = now, directory, project, late
        self._histories: dict[str, _PolicyHistory] = {}
        self._count = 0

    def begin(self, resource: str, bindings: Sequence[Mapping[str, Any]]) -> None:
        """Set the first policy of a new resource, which takes effect immediately."""
        self._histories[resource] = _PolicyHistory([(self._now(), self._stamped([dict(b) for b in bindings], 1))])

    def forget(self, resource: str) -> None:
        """Delete the policies of a deleted resource."""
        self._histories.pop(resource, None)

    def read(self, resource: str, version: int = 1) -> Policy:
        """Return the answer of getIamPolicy."""
        if version not in (0, 1, 3):
            raise bad(f"Invalid requested policy version: {version}. Must be 0, 1 or 3.")
        history = self._histories.get(resource)
        policy = copy.deepcopy(history.since[-1][1] if history else EMPTY)
        if version < 3 and policy["version"] == 3:
            policy["version"] = 1
            for binding in policy["bindings"]:
                condition = binding.pop("condition", None)
                if condition:  # "Policy versions": the role's name then tells that there is a condition
                    digest = hashlib.sha1(condition["expression"].encode(), usedforsecurity=False).hexdigest()
                    binding["role"] += f"_withcond_{digest[:20]}"
        return policy

    def write(self, resource: str, policy: Mapping[str, Any], *, convenience: bool = False) -> Policy:
        """Set a policy, and return what getIamPolicy then answers. `convenience`: whether owners, editors and viewers
        of the project may be named, as on buckets.

        Raises:
            ApiError: 409 where another write came between; 400 for what IAM does not take.
        """
        previous = self._histories.get(resource)
        before = previous.since[-1][1] if previous else EMPTY
        etag = policy.get("etag")
        if etag and etag != before["etag"]:
            raise aborted("There were concurrent policy changes. Please retry the whole read-modify-"
                           "write with exponential backoff. The request's ETag did not match the current policy's"
                           " ETag.")  # fmt: skip
        bindings = _merged(policy.get("bindings") or [])
        version = int(policy.get("version") or 1)
        self._check(bindings, version, convenience)
        stamped = self._stamped(bindings, 3 if any("condition" in b for b in bindings) else 1)
        history = self._histories.setdefault(resource, _PolicyHistory())
        now = self._now()
        while len(history.since) > 1 and history.since[1][0] <= now:
            history.since.pop(0)
        history.since.append((now + self._late, stamped))
        return self.read(resource, 3)

    def allows(self, member: str, permission: str, resources: Sequence[str], values: Values) -> bool:
        """Return whether a policy of one of these resources gives a permission to a member now."""
        return any(
            permission in (self._directory.permissions(binding["role"]) or ())
            and self._names(binding, member)
            and ("condition" not in binding or is_true(binding["condition"]["expression"], values))
            for resource in resources
            for binding in self._effective(resource)
        )

    def mark_deleted(self, email: str, unique_id: str) -> None:
        """Rename a deleted service account in its grants: they remain for its id, not for its name."""
        old, new = f"serviceAccount:{email}", f"deleted:serviceAccount:{email}?uid={unique_id}"
        for history in self._histories.values():
            for _, policy in history.since:
                for binding in policy.get("bindings", ()):
                    binding["members"] = [new if member == old else member for member in binding["members"]]

    def back(self, email: str, unique_id: str) -> None:
        """Restore the grants of an undeleted service account."""
        old, new = f"deleted:serviceAccount:{email}?uid={unique_id}", f"serviceAccount:{email}"
        for history in self._histories.values():
            for _, policy in history.since:
                for binding in policy.get("bindings", ()):
                    binding["members"] = [new if member == old else member for member in binding["members"]]

    def _effective(self, resource: str) -> Sequence[Mapping[str, Any]]:
        history, now = self._histories.get(resource), self._now()
        effective = [policy for since, policy in history.since if since <= now] if history else []
        return effective[-1].get("bindings", ()) if effective else ()

    def _names(self, binding: Mapping[str, Any], member: str) -> bool:
        for bound_member in binding["members"]:
            kind, _, project_id = bound_member.partition(":")
            if bound_member == member or bound_member in _ANYBODY:
                return True
            if kind in _OF_PROJECT and project_id == self._project:
                bindings = self._effective(f"projects/{self._project}")
                if any(b["role"] == _OF_PROJECT[kind] and member in b["members"] for b in bindings):
                    return True
        return False

    def _stamped(self, bindings: list[dict[str, Any]], version: int) -> Policy:
        self._count += 1
        etag = base64.b64encode((0x0706_0000_0000_0000 + self._count).to_bytes(8, "big")).decode()
        return {"version": version, "etag": etag, "bindings": bindings}

    def _check(self, bindings: Sequence[Mapping[str, Any]], version: int, convenience: bool) -> None:
        wrong = [problem for b in bindings for problem in self._problems(b, version, convenience)]
        if sum(len(b["members"]) for b in bindings) > PRINCIPALS:
            wrong.append(f"The number of members in the policy must be less than {PRINCIPALS}.")
        if wrong:
            raise bad(wrong[0])

    def _problems(self, binding: Mapping[str, Any], version: int, convenience: bool) -> list[str]:
        role, wrong = str(binding.get("role", "")), list[str]()
        if self._directory.permissions(role) is None:
            wrong.append(f"Role {role} does not exist in the resource's hierarchy, or is not known to the local cloud.")
        for member in binding["members"]:
            kind, _, name = member.partition(":")
            if member in _ANYBODY or (convenience and kind in _OF_PROJECT):
                continue
            if not _MEMBER.fullmatch(member):
                wrong.append(f"The member {member} is of an unknown type. Please set a valid type prefix for the"
                             " member.")  # fmt: skip
            elif kind == "serviceAccount" and not self._directory.account(name):
                wrong.append(f"Service account {name} does not exist.")
        condition = binding.get("condition")
        return wrong if condition is None else [*wrong, *_condition_problems(condition, role, version)]


def _condition_problems(condition: Mapping[str, Any], role: str, version: int) -> list[str]:
    wrong = []
    if version != 3:
        wrong.append("Conditions can't be set on policies with a version less than 3. Please specify version 3.")
    if role in BASIC:
        wrong.append(f"Conditions can't be set on the basic role {role}.")
    if not condition.get("title") or len(condition["title"]) > TITLE:
        wrong.append(f"A condition needs a title of at most {TITLE} characters.")
    try:
        check_expression(str(condition.get("expression", "")))
    except BadExpression as error:
        wrong.append(f"The condition {condition.get('expression')!r} cannot be evaluated: {error}.")
    return wrong


def _merged(bindings: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return bindings as IAM stores them: one for each role and condition, each member once, none without members."""
    by_role: dict[tuple[str, str], dict[str, Any]] = {}
    for binding in bindings:
        condition = {k: v for k, v in (binding.get("condition") or {}).items() if v}
        key = (str(binding.get("role", "")), str(sorted(condition.items())))
        entry = by_role.setdefault(key, {"role": key[0], "members": []})
        entry["members"] = list(dict.fromkeys([*entry["members"], *(binding.get("members") or [])]))
        if condition:
            entry["condition"] = condition
    return [binding for binding in by_role.values() if binding["members"]]
