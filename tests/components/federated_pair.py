"""Helpers for tests of federated clusters: a cluster of each cloud, and the peers that it may have."""

import copy
import json
from collections.abc import Callable
from typing import Any

from everspot import AwsTrainingCluster, GcpTrainingCluster
from gcp_helpers import SPEC

Declare = Callable[..., tuple[Any, dict[str, Any]]]
AWS, GOOGLE, NEAR = "everspot-aws", "everspot-gcp", "everspot-near"
ROLE = "arn:aws:iam::123456789012:role/everspot-aws-identity-scheduler-1"
ACCOUNT = f"{GOOGLE}-scheduler@everspot-local.iam.gserviceaccount.com"
ON_AWS = {
    "name": AWS, "cloud": "aws", "control": "s3://aws-control?region=eu-west-1",
    "data": "s3://aws-data?region=eu-west-1", "scheduler": ROLE,
}  # fmt: skip
ON_GOOGLE = {
    "name": GOOGLE, "cloud": "gcp", "control": "gs://everspot-gcp-store-control", "data": "gs://everspot-gcp-store-data",
    "scheduler": ACCOUNT, "scheduler_id": "100000000000123456789", "project_number": "100000000001",
}  # fmt: skip
NEIGHBOUR = {**ON_AWS, "name": NEAR, "control": "s3://near-control?region=eu-west-1",
             "data": "s3://near-data?region=eu-west-1"}  # fmt: skip


class Pair:
    """A cluster of each cloud, declared with peers."""

    def __init__(self, declare: Declare, spec: Any) -> None:
        self._declare, self._spec = declare, spec

    def aws(self, *peers: Any, preview: bool = False, **changes: Any) -> tuple[Any, dict[str, Any]]:
        args: Any = {**copy.deepcopy(self._spec), **changes, "federation": list(peers)}
        return self._declare(lambda: {"peer": AwsTrainingCluster(AWS, args).peer}, preview=preview)

    def google(self, *peers: Any, preview: bool = False, **changes: Any) -> tuple[Any, dict[str, Any]]:
        args: Any = {**copy.deepcopy(SPEC), **changes, "federation": list(peers)}
        return self._declare(lambda: {"peer": GcpTrainingCluster(GOOGLE, args).peer}, preview=preview)


def statements(recorder: Any, name: str) -> list[Any]:
    return [json.loads(recorder.inputs(name)["policy"])]
