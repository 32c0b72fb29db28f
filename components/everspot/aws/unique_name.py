"""Asks EC2 in the preview of a new cluster whether another cluster has its name in the account and region."""

from typing import Any

import pulumi
from everspot_clouds.aws.rules import CLUSTER_TAG, STORE_TAG
from everspot_core.counting import first_few

from everspot.aws import preview_queries

_NAMED_AT_MOST = 3


def check_unique_name(parent: pulumi.Resource, name: str, control_url: pulumi.Output[str]) -> None:
    """Refuse a new cluster whose name another one has, whose security groups have the mark of another store.

    Clusters that exist already are not refused: the marks tell their resources apart. `control_url`: of the cluster's
    store, which a preview does not know before there is one.

    Raises, when the answer is there:
        pulumi.RunError: with the groups of the other cluster.
    """
    if pulumi.runtime.is_dry_run():
        new: pulumi.Output[bool] = pulumi.Output.from_input(_is_unknown(control_url))
        new.apply(lambda is_new: _query_groups(parent, name) if is_new else None)


async def _is_unknown(url: pulumi.Output[str]) -> bool:
    return not await url.is_known()


def _query_groups(parent: pulumi.Resource, name: str) -> pulumi.Output[None]:
    def unknown(error: Exception) -> dict[str, Any]:
        reason = preview_queries.reason(error)
        pulumi.log.warn(
            f"Whether another cluster is called {name} is not known, since EC2 did not say: {reason}", parent
        )
        return {"ids": []}

    filters = [{"name": f"tag:{CLUSTER_TAG}", "values": [name]}, {"name": "tag-key", "values": [STORE_TAG]}]
    answer = preview_queries.invoke(
        parent, "ec2/getSecurityGroups:getSecurityGroups", {"filters": filters}, failed=unknown
    )
    return answer.apply(lambda groups: _refuse(name, groups["ids"]))


def _refuse(name: str, group_ids: list[str]) -> None:
    if group_ids:
        raise pulumi.RunError(
            f"Another cluster called {name} is in this account and region (security groups "
            f"{first_few(sorted(group_ids), _NAMED_AT_MOST)}). Give this stack another name, or delete what is left of "
            "the other cluster."
        )
