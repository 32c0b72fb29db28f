"""Stands in for IAM's policy simulator: whether a role's policies and its boundary allow calls on resources.

IAM API Reference, SimulatePrincipalPolicy. The account's owner is no principal of it. Context keys are the caller's
alone; policies of the organization and of resources are not known here.
"""

from typing import Any

from moto.core.responses import ActionResult
from moto.iam.exceptions import InvalidInput
from moto.iam.responses import IamResponse

from everspot_local.aws.iam.caller import Caller
from everspot_local.aws.iam.door import role_caller
from everspot_local.aws.iam.policy_language import Call, Context

PAGE = 100


def simulate_principal_policy(self: IamResponse) -> ActionResult:
    """Answer SimulatePrincipalPolicy for a role."""
    source = str(self._get_param("PolicySourceArn"))
    kind, _, name = source.rpartition(":")[2].partition("/")
    if kind != "role":
        raise InvalidInput(f"Invalid Entity Arn: {source} does not clearly define entity type and name.")
    role = self.backend.get_role(name.rpartition("/")[2])  # which raises NoSuchEntity
    caller = role_caller(source, self.backend, role.name)
    context = _context(self._get_param("ContextEntries") or [])
    actions, resources = self._get_param("ActionNames") or [], self._get_param("ResourceArns") or ["*"]
    results = [_result(caller, Call(action, resource, context)) for action in actions for resource in resources]
    start, count = int(self._get_param("Marker") or 0), int(self._get_param("MaxItems") or PAGE)
    more = {"Marker": str(start + count)} if len(results) > start + count else {}
    return ActionResult({"EvaluationResults": results[start : start + count], "IsTruncated": bool(more), **more})


def _context(entries: list[dict[str, Any]]) -> Context:
    return {entry["ContextKeyName"].lower(): tuple(entry["ContextKeyValues"]) for entry in entries}


def _result(caller: Caller, call: Call) -> dict[str, Any]:
    denial = caller.denied([call])
    decision = "allowed" if denial is None else "explicitDeny" if denial.explicit else "implicitDeny"
    return {
        "EvalActionName": call.action,
        "EvalResourceName": call.resource,
        "EvalDecision": decision,
        "MatchedStatements": [],
        "MissingContextValues": [],
    }
