"""The service accounts of a cluster on the local Google Cloud, with the permissions that the components give them."""

import json
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from everspot.federation import CARRIED_READS
from everspot.gcp import policies
from everspot.gcp.federation import HOME_WRITES
from everspot.gcp.policies import Condition
from everspot_clouds.gcp.names import agents
from everspot_clouds.gcp.rules import name_prefix
from everspot_core.jobs.records import Role
from everspot_store import SystemClock

PROJECT = "projects/everspot-local"
JOB_ROLE = f"{PROJECT}/roles/jobs"
"""The role that lets jobs delete. The limits of their tokens name it."""
NEW_ACCOUNT = timedelta(seconds=30)
"""After it was made, a service account can be named in a policy (IAM documentation, "Create service accounts")."""
NEW_POLICY = timedelta(seconds=125)
"""After it was set, a policy has effect: within two minutes, also at the local cloud (IAM documentation, "Access change
propagation")."""
Send = Callable[[str, str, Any], Any]


def send_as(endpoint: str, token: str) -> Send:
    """Return a function that sends a request with a user's token: method, path, body."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def send(method: str, path: str, body: Any) -> Any:
        request = urllib.request.Request(f"{endpoint}/{path}", json.dumps(body).encode(), headers, method=method)
        with urllib.request.urlopen(request) as answer:
            return json.loads(answer.read())

    return send


def account(role: Role) -> str:
    """Return the address of a role's service account."""
    return f"e2e-{role.value}@everspot-local.iam.gserviceaccount.com"


def grant(
    send: Send, clock: SystemClock, cluster: str, control: str, data: str, subscription: str, *, peers: bool
) -> None:
    """Make the service accounts and bind the components' permissions to them. `control`, `data`: the buckets; `peers`:
    whether the cluster has peers, to which its scheduler sends jobs."""
    for role in (Role.AGENT, Role.SCHEDULER):
        body = {"accountId": account(role).partition("@")[0], "serviceAccount": {"displayName": role.value}}
        send("POST", f"iam/v1/{PROJECT}/serviceAccounts", body)
    clock.sleep(clock.to_real(NEW_ACCOUNT))
    agent, scheduler = (f"serviceAccount:{account(role)}" for role in (Role.AGENT, Role.SCHEDULER))

    def custom(name: str, permissions: Sequence[str]) -> str:
        role = {"roleId": name, "role": {"includedPermissions": list(permissions)}}
        return str(send("POST", f"iam/v1/{PROJECT}/roles", role)["name"])

    read, write = custom("reader", policies.READ), custom("writer", policies.WRITE)
    custom("jobs", policies.JOB_DELETES)
    on_control = [
        bind(read, agent),
        *bind_each(write, agent, policies.below(control, policies.AGENT_WRITES)),
        bind(read, scheduler),
        *bind_each(write, scheduler, policies.below(control, policies.SCHEDULER_WRITES)),
    ]
    on_data = [
        bind(read, agent, policies.below_or_list(data, policies.AGENT_READS)),
        *bind_each(write, agent, policies.below(data, policies.AGENT_KEEPS)),
    ]
    if peers:
        on_control += bind_each(write, scheduler, policies.below(control, HOME_WRITES))
        on_data += [
            bind(read, scheduler, policies.below_or_list(data, CARRIED_READS)),
            *bind_each(write, scheduler, policies.below(data, ("jobs/",))),
        ]
    for bucket, bindings in ((control, on_control), (data, on_data)):
        send("PUT", f"storage/v1/b/{bucket}/iam", {"version": 3, "bindings": bindings})
    on_project = [
        bind(custom("leaver", policies.LEAVE), agent, policies.match_machines(agents(cluster))),
        bind(custom("watcher", policies.WATCH), scheduler),
        bind(custom("launcher", policies.LAUNCH), scheduler, policies.match_machines([name_prefix(cluster)])),
    ]
    project = {"policy": {"version": 3, "bindings": on_project}}
    send("POST", f"resourcemanager/v1/{PROJECT}:setIamPolicy", project)
    act = {"policy": {"bindings": [bind(custom("actor", policies.ACT_AS), scheduler)]}}
    send("POST", f"iam/v1/{PROJECT}/serviceAccounts/{account(Role.AGENT)}:setIamPolicy", act)
    listen = {"policy": {"bindings": [bind(custom("listener", policies.LISTEN), scheduler)]}}
    send("POST", f"pubsub/v1/{subscription}:setIamPolicy", listen)
    clock.sleep(clock.to_real(NEW_POLICY))


def bind_each(role: str, member: str, conditions: Sequence[Condition]) -> Iterator[dict[str, Any]]:
    """Yield a binding for each condition."""
    return (bind(role, member, condition) for condition in conditions)


def bind(role: str, member: str, condition: Condition | None = None) -> dict[str, Any]:
    """Return one binding of a policy."""
    binding: dict[str, Any] = {"role": role, "members": [member]}
    if condition is not None:
        binding["condition"] = {"title": condition.title, "expression": condition.expression}
    return binding
