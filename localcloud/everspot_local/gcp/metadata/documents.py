"""Stands in for the contents of the metadata server: a tree of texts, read by paths and answered as text or JSON.

It does not know guest attributes, OS Login's users or disks.
"""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from everspot_local.gcp.callers import ApiCaller
from everspot_local.gcp.compute.names import tail
from everspot_local.gcp.compute.state import Compute
from everspot_local.gcp.compute.vms import Vm
from everspot_local.gcp.project import NUMBER, PROJECT

UNIVERSE = "everspot-local.example"
"""The domain of all services, instead of Google's own. google-auth asks those of Google's own universe,
googleapis.com, which locations an account may be used from (`google/auth/_regional_access_boundary_utils.py`), and it
does so past every endpoint that a program is given. Nothing here may reach them."""

Tree = Mapping[str, Any]
_FREE_KEYS = ("attributes", "service-accounts")
"""Folders whose names are somebody's own, and stay in JSON as they are."""


class Values:
    """The contents of all instances' metadata servers. Called with the market's lock held."""

    def __init__(self, compute: Compute) -> None:
        self._compute = compute

    def tree(self, instance_id: str) -> Tree | None:
        """Return all contents for an instance; None if there is no such instance."""
        vm = next((v for v in self._compute.vms.values() if v.machine.id == instance_id), None)
        if vm is None:
            return None
        project = {"project-id": PROJECT, "numeric-project-id": int(NUMBER), "attributes": {}}
        return {"instance": self._instance(vm), "project": project, "universe": {"universe-domain": UNIVERSE}}

    def _instance(self, vm: Vm) -> Tree:
        document = vm.document
        zone = f"projects/{NUMBER}/zones/{vm.machine.pool.zone}"
        items = document["metadata"].get("items", ())
        return {
            "attributes": {item["key"]: item.get("value", "") for item in items},
            "cpu-platform": document["cpuPlatform"],
            "description": document.get("description", ""),
            "hostname": f"{document['name']}.{vm.machine.pool.zone}.c.{PROJECT}.internal",
            "id": int(document["id"]),
            "machine-type": f"projects/{NUMBER}/machineTypes/{tail(document['machineType'])}",
            "maintenance-event": "NONE",
            "name": document["name"],
            "network-interfaces": {"0": _interface(document["networkInterfaces"][0])},
            "preempted": "FALSE" if vm.machine.reclaim_at is None else "TRUE",
            "scheduling": _scheduling(document["scheduling"]),
            "service-accounts": self._accounts(vm),
            "tags": document["tags"].get("items", []),
            "zone": zone,
        }

    def _accounts(self, vm: Vm) -> Tree:
        """Return the instance's account by its email and as `default`; an empty folder without one."""
        accounts: dict[str, Any] = {}
        for account in vm.document.get("serviceAccounts", ()):
            email = account.get("email") or "default"
            if email == "default":
                email = f"{NUMBER}-compute@developer.gserviceaccount.com"
            document = {
                "aliases": ["default"], "email": email, "scopes": account["scopes"],
                "token": Secret(ApiCaller(email, vm.machine.id)),
                "identity": Identity(email, self._claims(vm)),
            }  # fmt: skip
            accounts |= {email: document, "default": document}
        return accounts

    def _claims(self, vm: Vm) -> Tree:
        """Return the claims of a token in the form `full` about its instance."""
        return {
            "project_id": PROJECT, "project_number": int(NUMBER), "zone": vm.machine.pool.zone,
            "instance_id": vm.document["id"], "instance_name": vm.document["name"],
            "instance_creation_timestamp": int(vm.machine.launched_at.timestamp()),
        }  # fmt: skip

    def identity(self, identity: "Identity", audience: str, *, full: bool) -> str:
        """Return an identity token for an audience. `full`: with claims about the instance."""
        project = self._compute.project
        more = {"google": {"compute_engine": dict(identity.claims)}} if full else {}
        return project.signer.token(
            audience, project.unique_id(identity.email), identity.email, datetime.now(UTC), more
        )

    def token(self, caller: ApiCaller) -> str:
        """Return an access token as JSON. It expires in real time, because real programs wait for that."""
        now = datetime.now(UTC)
        token = self._compute.project.sessions.token(caller, now)
        seconds = int((token.expires - now).total_seconds())
        return json.dumps({"access_token": token.text, "expires_in": seconds, "token_type": "Bearer"})


class Secret:
    """A token that is created when its own path is read, and left out of listings."""

    def __init__(self, caller: ApiCaller) -> None:
        self.caller = caller


class Identity(Secret):
    """An identity token that is created for the requested audience, and left out of listings."""

    def __init__(self, email: str, claims: Tree) -> None:
        super().__init__(ApiCaller(email))
        self.email, self.claims = email, claims


def _interface(nic: Tree) -> Tree:
    address = re.search(r"projects/[^/]+/global/networks/([^/]+)", nic["network"])
    return {
        "ip": nic["networkIP"],
        "network": f"projects/{NUMBER}/networks/{address[1] if address else ''}",
        "mac": "42:01:" + ":".join(f"{int(part):02x}" for part in nic["networkIP"].split(".")),
        "access-configs": {},
    }


def _scheduling(rules: Tree) -> Tree:
    return {
        "automatic-restart": str(bool(rules["automaticRestart"])).upper(),
        "on-host-maintenance": rules["onHostMaintenance"],
        "preemptible": str(bool(rules["preemptible"])).upper(),
    }


def find(tree: Tree, path: str) -> Any:
    """Return the value at a path, or None. A folder is a mapping."""
    value: Any = tree
    for part in (part for part in path.split("/") if part):
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    return value


def text(value: Any) -> str:
    """Return a value as text: a folder's names one per line, folders with a slash; several values one per line."""
    if isinstance(value, Mapping):
        return "".join(f"{name}/\n" if isinstance(part, Mapping) else f"{name}\n" for name, part in value.items())
    if isinstance(value, list):
        return "\n".join(map(str, value))
    return str(value)


def recursive(value: Any, name: str = "") -> Any:
    """Return a value with all its contents for JSON: numbered folders as lists, other names in camel case."""
    if isinstance(value, Mapping):
        visible = {key: part for key, part in value.items() if not isinstance(part, Secret)}
        if visible and all(key.isdigit() for key in visible):
            return [recursive(visible[key]) for key in sorted(visible, key=int)]
        own = name in _FREE_KEYS
        return {key if own else _camel(key): recursive(part, key) for key, part in visible.items()}
    return value


def _camel(name: str) -> str:
    head, *tail = name.split("-")
    return head + "".join(part.capitalize() for part in tail)
