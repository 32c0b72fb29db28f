"""Puts together the services of a project beside Compute Engine: storage, Pub/Sub, identities, logging, secrets, keys,
monitoring; and holds every call to the policies.

Their state is created again when the project is emptied; the routes to it stay.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from werkzeug.wrappers import Request as HttpRequest
from werkzeug.wrappers import Response

from everspot_local.gcp import billing, price_list, service_usage
from everspot_local.gcp.answers import ApiError
from everspot_local.gcp.budgets import Budgets
from everspot_local.gcp.callers import ApiCaller
from everspot_local.gcp.environment import XML
from everspot_local.gcp.iam.accounts import Accounts
from everspot_local.gcp.iam.boundaries import LIST_PREFIX, admits
from everspot_local.gcp.iam.exchange import Exchange
from everspot_local.gcp.iam.names import attributes, inherited
from everspot_local.gcp.iam.needs import Needs
from everspot_local.gcp.iam.policies import Directory, Policies
from everspot_local.gcp.iam.pools import IdentityPools
from everspot_local.gcp.iam.roles import Roles
from everspot_local.gcp.iam.routes import (
    IamApi,
    credentials_routes,
    resource_manager_routes,
    resource_manager_v3_routes,
)
from everspot_local.gcp.kms import Kms
from everspot_local.gcp.logging import routes as logging_routes
from everspot_local.gcp.logging.entries import CALLED, SYSTEM, instance_event
from everspot_local.gcp.logging.sinks import Sinks
from everspot_local.gcp.metadata.identity import PATH as KEYS
from everspot_local.gcp.monitoring import Monitoring
from everspot_local.gcp.project import NUMBER, PROJECT, Need, Project
from everspot_local.gcp.pubsub import routes as pubsub_routes
from everspot_local.gcp.pubsub.service import PubSub
from everspot_local.gcp.router import Handler, Request, Service
from everspot_local.gcp.secret_manager import SecretManager
from everspot_local.gcp.storage.buckets import BucketDocuments
from everspot_local.gcp.storage.json_api import JsonApi
from everspot_local.gcp.storage.objects import Objects
from everspot_local.gcp.storage.resumable import PATH as SESSIONS
from everspot_local.gcp.storage.resumable import ResumableUploads
from everspot_local.gcp.storage.xml_api import XmlApi
from everspot_local.market.clock import stamp

AGENT = f"service-{NUMBER}@gs-project-accounts.iam.gserviceaccount.com"
"""Cloud Storage's own account in the project ("Service agents")."""
PUBSUB_AGENT = f"service-{NUMBER}@gcp-sa-pubsub.iam.gserviceaccount.com"
"""That of Pub/Sub."""
# Document of discovery, prefix of its paths here, whether it is younger than Compute and Storage.
_APIS = (
    ("storage.v1", "", False), ("pubsub.v1", "/pubsub", True), ("iam.v1", "/iam", True),
    ("iamcredentials.v1", "/iamcredentials", True), ("sts.v1", "/sts", True),
    ("cloudresourcemanager.v1", "/resourcemanager", True),
    ("cloudresourcemanager.v3", "/resourcemanager", True), ("logging.v2", "/logging", True),
    ("secretmanager.v1", "/secretmanager", True), ("cloudkms.v1", "/kms", True),
    ("monitoring.v3", "/monitoring", True), ("monitoring.v1", "/monitoring", True),
    ("serviceusage.v1", "/serviceusage", True), ("cloudbilling.v1", "/cloudbilling", True),
    ("billingbudgets.v1", "/billingbudgets", True),
)  # fmt: skip


@dataclass(frozen=True)
class _StorageClock:
    """Market time for the times that are shown, this machine's for the pace of writes."""

    project: Project

    def now(self) -> datetime:
        return self.project.market.clock.now()

    def monotonic(self) -> timedelta:
        return timedelta(seconds=time.monotonic())

    def sleep(self, duration: timedelta) -> None:
        time.sleep(duration.total_seconds())

    def to_real(self, duration: timedelta) -> timedelta:
        return self.project.market.clock.to_real(duration)

    def to_market(self, duration: timedelta) -> timedelta:
        return duration * self.project.market.clock.scale


class _State:
    """The state of the services."""

    def __init__(self, project: Project) -> None:
        now, strict = project.market.clock.now, project.strict
        self.accounts = Accounts(now, PROJECT, NUMBER, strict=strict)
        self.roles = Roles(now, PROJECT)
        directory = Directory(self.accounts.exists, self.roles.permissions)
        self.pools = IdentityPools(now, PROJECT, NUMBER)
        self.policies = Policies(now, directory, PROJECT, project.market.delays.access if strict else timedelta())
        self.pubsub = PubSub(
            now,
            project.market.clock.to_real,
            self._may_forward,
            lambda: self.accounts.service_used(PUBSUB_AGENT),
            disturbances=lambda: project.market.disturbances,
        )
        self.objects = Objects(_StorageClock(project))
        has_permission = self.has_permission
        self.kms = Kms(now, self.policies, has_permission)
        self.sinks = Sinks(now, PROJECT, NUMBER, self._may_publish, self.pubsub.publish, self.accounts.service_used)
        self.buckets = BucketDocuments(
            self.objects, now, NUMBER, lambda: f"{project.endpoint}/storage/v1", self._usable, strict=strict
        )
        self._now = now
        self.uploads = ResumableUploads(now, lambda: project.endpoint)
        storage = JsonApi(
            self.buckets, self.objects, self.policies, has_permission, (PROJECT, NUMBER), AGENT, self.uploads
        )
        monitoring = Monitoring(now, PROJECT, NUMBER)
        on = {f"{name}.googleapis.com" for name in service_usage.ON}
        manager = resource_manager_routes(
            PROJECT, NUMBER, self.policies, has_permission, stamp(project.market.clock.epoch)
        )
        self.routes: dict[str, Mapping[str, Handler]] = {
            "storage.v1": storage.routes(),
            "pubsub.v1": pubsub_routes.routes(self.pubsub, self.policies, has_permission),
            "iam.v1": {
                **IamApi(PROJECT, self.accounts, self.roles, self.policies, has_permission).routes(),
                **self.pools.routes(),
            },
            "sts.v1": Exchange(
                self.pools, project.sessions, self.roles.permissions, project.machines.second_cloud.send
            ).routes(),
            "iamcredentials.v1": credentials_routes(self.accounts, project.sessions),
            "cloudresourcemanager.v1": manager,
            "cloudresourcemanager.v3": resource_manager_v3_routes(manager, PROJECT, NUMBER),
            "logging.v2": logging_routes.routes(self.sinks),
            "secretmanager.v1": SecretManager(now, PROJECT, NUMBER, self.policies, has_permission).routes(),
            "cloudkms.v1": self.kms.routes(),
            "monitoring.v3": monitoring.routes(),
            "monitoring.v1": monitoring.dashboard_routes(),
            "serviceusage.v1": service_usage.routes(NUMBER, on),
            "cloudbilling.v1": {
                **billing.routes(PROJECT, NUMBER, self.policies, has_permission),
                **price_list.routes(lambda: project.market.pools.catalogue),
            },
            "billingbudgets.v1": Budgets(PROJECT, NUMBER, lambda service: service in on or not strict).routes(),
        }

    def has_permission(self, caller: ApiCaller, permission: str, resource: str, list_prefix: str = "") -> bool:
        """Return whether a caller has a permission on a resource; the owner has all. `list_prefix`: of a listing of
        objects."""
        if caller.owner:
            return True
        if caller.boundary is not None:
            values = {**attributes(resource, PROJECT, NUMBER), LIST_PREFIX: list_prefix}
            if not admits(caller.boundary, permission, resource, values, self.buckets.is_uniform):
                return False
        usable = bool(caller.principals) or self.accounts.usable(caller.email)
        return usable and any(self._allows(member, permission, resource) for member in caller.members)

    def _allows(self, member: str, permission: str, resource: str, **more: Any) -> bool:
        values = {**attributes(resource, PROJECT, NUMBER), "request.time": self._now(), **more}
        return self.policies.allows(member, permission, inherited(resource, PROJECT), values)

    def _may_publish(self, member: str, topic: str) -> bool:
        return self._allows(member, "pubsub.topics.publish", topic)

    def _may_forward(self, subscription: str, topic: str) -> bool:
        """Return whether Pub/Sub may take messages from the one and publish to the other ("Handle message
        failures")."""
        member = f"serviceAccount:{PUBSUB_AGENT}"
        may_consume = self._allows(member, "pubsub.subscriptions.consume", subscription)
        return may_consume and self._may_publish(member, topic)

    def _usable(self, key: str) -> bool:
        return self.kms.usable(key, f"serviceAccount:{AGENT}")


class Products:
    """The services of a project beside Compute Engine.

    Args:
        project: whose they are; from now on its calls are held to its policies.
        resource: a resource of Compute by its path, if there is one.
    """

    def __init__(self, project: Project, resource: Callable[[str], Mapping[str, Any] | None]) -> None:
        self._project = project
        self._lock = threading.RLock()
        self._state = _State(project)
        project.needs = Needs(PROJECT, self._zones, resource, lambda b, k: self._state.objects.has(b, k))
        project.granted = self._granted
        project.account_exists = self._account_exists
        project.unique_id = lambda email: self._state.accounts.unique_id(email)
        project.resets.append(self._empty)

    def services(self) -> list[Service]:
        """Return all services."""
        return [
            Service(name, prefix, {method: partial(self._call, name, method) for method in self._state.routes[name]},
                    modern=modern, open=name == "sts.v1")
            for name, prefix, modern in _APIS
        ]  # fmt: skip

    @property
    def objects(self) -> Objects:
        """Return the objects in the buckets."""
        return self._state.objects

    def otherwise(self, environ: dict[str, Any], start_response: Any) -> Any:
        """Answer requests that no method of a JSON API serves: with Cloud Storage's XML API, its sessions of uploads,
        the keys of Google's sign-in, or 404."""
        path = str(environ.get("PATH_INFO"))
        if SESSIONS.fullmatch(path):
            with self._lock:
                return self._state.uploads.answer(HttpRequest(environ))(environ, start_response)
        if path.startswith(f"{XML}/"):
            application = XmlApi(self._state.objects, self._enter)
            return application({**environ, "PATH_INFO": path.removeprefix(XML)}, start_response)
        if path == KEYS:
            keys = json.dumps({"keys": [self._project.signer.key]})
            return Response(keys, 200, content_type="application/json; charset=UTF-8")(environ, start_response)
        error = ApiError(404, "notFound", f"The requested URL {path} was not found on this server.")
        body = json.dumps(error.document(listed=False))
        return Response(body, 404, content_type="application/json; charset=UTF-8")(environ, start_response)

    def heard(self, operation: Mapping[str, Any]) -> None:
        """Log what an operation reports of an instance: its preemption, its end from within, its deletion."""
        path = str(operation["targetLink"]).partition("/compute/v1/")[2]
        ended, parts = operation["status"] == "DONE", path.split("/")
        if parts[4:5] != ["instances"] or operation.get("error"):
            return
        kind, user = operation["operationType"], str(operation["user"])
        if kind in CALLED:
            method, part = CALLED[kind], ("last" if ended else "first")
        elif kind.startswith(SYSTEM) and ended:
            method, part = kind, ""
        else:
            return
        now = self._project.market.clock.now()
        entry = instance_event(
            PROJECT, parts[3], parts[5], str(operation["targetId"]), method, now, user=user, part=part
        )
        self._state.sinks.route(entry)

    def _call(self, api: str, method: str, request: Request) -> Any:
        handler = self._state.routes[api][method]
        if method.endswith(".pull"):
            return handler(request)  # it may wait, and looks after itself
        with self._lock:
            return handler(request)

    def _granted(self, caller: ApiCaller, need: Need) -> bool:
        return self._state.has_permission(caller, need.permission, need.resource, need.list_prefix)

    def _enter(self, authorization: str, method: str, params: Mapping[str, Any]) -> None:
        caller = self._project.sessions.caller(authorization, datetime.now(tz=self._project.market.clock.epoch.tzinfo))
        self._project.enter(method, params, {}, caller)

    def _account_exists(self, email: str) -> bool:
        return email == "default" or self._state.accounts.exists(email)

    def _zones(self) -> Sequence[str]:
        return self._project.zones

    def _empty(self) -> None:
        self._state = _State(self._project)
