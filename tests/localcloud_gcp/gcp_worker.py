"""A service account of the local Google Cloud with a role of its own, for tests of permissions."""

from typing import Any

ROOT = "projects/everspot-local"
ACCOUNTS = f"/iam/v1/{ROOT}/serviceAccounts"
ROLES = f"/iam/v1/{ROOT}/roles"
PROJECT = f"/resourcemanager/v1/{ROOT}"
AGENT = "everspot-agent@everspot-local.iam.gserviceaccount.com"
ON_INSTANCES = (
    'resource.type == "compute.googleapis.com/Instance" && resource.name.extract("/instances/{name}")'
    '.startsWith("everspot-")'
)


class Worker:
    """A service account, and what it is given."""

    def __init__(self, kit: Any) -> None:
        self.kit = kit
        account = kit.call(
            "POST", ACCOUNTS, {"accountId": "everspot-agent", "serviceAccount": {"displayName": "agents"}}
        )
        self.id = account.body["uniqueId"]

    def token(self) -> str:
        path = f"/iamcredentials/v1/projects/-/serviceAccounts/{AGENT}:generateAccessToken"
        return str(self.kit.call("POST", path, {"scope": ["cloud-platform"]}).body["accessToken"])

    def may(self, *permissions: str, condition: str = "") -> None:
        """A custom role of its own, granted on the project."""
        role = {"roleId": "everspotAgent", "role": {"includedPermissions": list(permissions)}}
        assert self.kit.call("POST", ROLES, role).status == 200
        binding: dict[str, Any] = {"role": f"{ROOT}/roles/everspotAgent", "members": [f"serviceAccount:{AGENT}"]}
        if condition:
            binding["condition"] = {"title": "own", "expression": condition}
        assert self.kit.call("POST", f"{PROJECT}:setIamPolicy", policy(binding)).status == 200


def policy(*bindings: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"policy": {"version": 3, "bindings": list(bindings), **more}}
