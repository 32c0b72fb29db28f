"""Custom roles, and their bindings to service accounts, some of them with conditions."""

from collections.abc import Callable, Sequence
from typing import Any

import pulumi
from everspot_core.validation.problems import camel
from pulumi_gcp import artifactregistry, projects, pubsub, secretmanager, serviceaccount, storage

from everspot.common import former_name
from everspot.gcp.policies import Condition

UNIQUE_DIGITS = 8
"""Digits of a service account's unique id that end the ids of its roles. A role's id cannot be used again for up to 37
days after the role was deleted (IAM documentation, "Create and manage custom roles"); a new cluster of the same name
has new service accounts, and so new ids of roles."""


class Granting:
    """Makes custom roles and binds them to one service account. `bindings`: every binding so far.

    `unique`: the account's unique id, a number in digits."""

    def __init__(
        self, parent: pulumi.Resource, name: str, cluster: str, email: pulumi.Input[str], unique: pulumi.Input[str]
    ) -> None:
        self._name, self._cluster = name, cluster
        self._child = pulumi.ResourceOptions(parent=parent)
        self._member = pulumi.Output.concat("serviceAccount:", email)
        self._unique = pulumi.Output.from_input(unique)
        self.bindings: list[pulumi.Resource] = []

    def role(self, suffix: str, permissions: Sequence[str], description: str) -> pulumi.Output[str]:
        """Return a custom role of the project; its name is known to bindings. `description`: its purpose."""
        label = camel(suffix.replace("-", "_"))
        begins = f"everspot_{self._cluster.replace('-', '_')}_{label}_"
        custom: Any = projects.IAMCustomRole(
            f"{self._name}-{suffix}",
            role_id=self._unique.apply(lambda digits: f"{begins}{digits[-UNIQUE_DIGITS:]}"),
            title=f"Everspot {self._cluster}: {suffix}"[:100],
            description=description,
            permissions=sorted(permissions),
            opts=self._child,
        )
        return pulumi.Output.from_input(custom.name)

    def on_project(
        self,
        suffix: str,
        project: pulumi.Input[str],
        role: pulumi.Input[str],
        condition: Condition | pulumi.Output[Condition] | None = None,
    ) -> None:
        """Bind a role in a whole project."""
        about = None if condition is None else _about(condition)
        self._bind(projects.IAMMember, suffix, role, project=project, condition=about)

    def on_bucket(
        self,
        suffix: str,
        bucket: pulumi.Input[str],
        role: pulumi.Input[str],
        condition: Callable[[str], Condition] | None = None,
        *,
        former_suffix: str = "",
    ) -> None:
        """Bind a role on a bucket. `condition`: made of the bucket's name; `former_suffix`: of the binding's earlier
        name."""
        about = None if condition is None else _about(pulumi.Output.from_input(bucket).apply(condition))
        self._bind(storage.BucketIAMMember, suffix, role, former_suffix, bucket=bucket, condition=about)

    def on_subscription(self, suffix: str, subscription: pulumi.Input[str], role: pulumi.Input[str]) -> None:
        """Bind a role on a subscription, projects/…/subscriptions/…."""
        self._bind(pubsub.SubscriptionIAMMember, suffix, role, subscription=subscription)

    def on_topic(self, suffix: str, topic: pulumi.Input[str], role: pulumi.Input[str]) -> None:
        """Bind a role on a topic, projects/…/topics/…."""
        self._bind(pubsub.TopicIAMMember, suffix, role, topic=topic)

    def on_secret(self, suffix: str, secret: str, role: pulumi.Input[str], *, former_suffix: str = "") -> None:
        """Bind a role on a secret, projects/…/secrets/…. `former_suffix`: of the binding's earlier name."""
        self._bind(secretmanager.SecretIamMember, suffix, role, former_suffix, secret_id=secret)

    def on_repository(self, suffix: str, location: str, project: str, name: str, role: pulumi.Input[str]) -> None:
        """Bind a role on a repository of Artifact Registry."""
        where = {"location": location, "project": project, "repository": name}
        self._bind(artifactregistry.RepositoryIamMember, suffix, role, **where)

    def on_account(self, suffix: str, account: pulumi.Input[str], role: pulumi.Input[str]) -> None:
        """Bind a role on another service account, projects/…/serviceAccounts/…."""
        self._bind(serviceaccount.IAMMember, suffix, role, service_account_id=account)

    def _bind(
        self,
        kind: Callable[..., pulumi.Resource],
        suffix: str,
        role: pulumi.Input[str],
        former_suffix: str = "",
        **where: Any,
    ) -> None:
        """Bind a role to the account. `kind`: the kind of binding; `where`: its resource, and its condition."""
        opts = self._child
        if former_suffix:
            opts = pulumi.ResourceOptions.merge(opts, former_name(f"{self._name}-{former_suffix}"))
        self.bindings.append(kind(f"{self._name}-{suffix}", role=role, member=self._member, opts=opts, **where))


def _about(condition: Condition | pulumi.Output[Condition]) -> dict[str, pulumi.Input[str]]:
    if isinstance(condition, Condition):
        return {"title": condition.title, "expression": condition.expression}
    return {
        "title": condition.apply(lambda found: found.title),
        "expression": condition.apply(lambda found: found.expression),
    }
