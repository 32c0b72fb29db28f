"""Splits the lists of IAM and S3 into pages where moto returns everything.

IAM: 100 entries a page unless MaxItems says otherwise (each List action). S3: ListBuckets gives up to 10,000 and a
continuation token. The other lists of IAM, SQS, EventBridge and S3 have their pages from moto.
"""

from collections.abc import Callable
from typing import Any

from moto.core.common_types import TYPE_RESPONSE
from moto.core.responses import ActionResult
from moto.iam.responses import IamResponse
from moto.s3.responses import S3Response

from everspot_local.aws.strict import strict

IAM_PAGE, BUCKET_PAGE = 100, 10_000
OWNER = {"ID": "bcaf1ffd86f41161ca5fb16fd081034f", "DisplayName": "webfile"}


def paged(original: Callable[[IamResponse], ActionResult], key: str) -> Callable[[IamResponse], ActionResult]:
    """Return a List action of IAM with `Marker` and `IsTruncated`. `key`: the list in its answer."""

    def page(self: IamResponse) -> ActionResult:
        answer = original(self)
        if not strict():
            return answer
        result: dict[str, Any] = answer.result  # type: ignore[assignment]
        start, count = int(self._get_param("Marker") or 0), int(self._get_param("MaxItems") or IAM_PAGE)
        end = start + count
        prefix = str(self._get_param("PathPrefix") or "")  # moto ignores it in some List actions
        items = [item for item in result[key] if not prefix or str(item.path).startswith(prefix)]
        more = len(items) > end
        marker = {"Marker": str(end)} if more else {}
        return ActionResult({**result, key: items[start:end], "IsTruncated": more, **marker})

    return page


def all_buckets(self: S3Response) -> TYPE_RESPONSE:
    """Answer ListBuckets with the continuation token that moto lacks."""
    self.data["Action"] = "ListAllMyBuckets"
    self._authenticate_and_authorize_s3_action()
    prefix, region = self._get_param("prefix"), self._get_param("bucket-region")
    listed_buckets = sorted(self.backend.list_buckets(prefix, region, None), key=lambda bucket: str(bucket.name))
    after = self._get_param("continuation-token") or ""
    after_token = [bucket for bucket in listed_buckets if bucket.name > after]
    shown = after_token[: int(self._get_param("max-buckets") or BUCKET_PAGE)]
    self.data["Action"] = "ListBuckets"
    buckets = [{"Name": b.name, "CreationDate": b.creation_date_ISO8601, "BucketRegion": b.region_name} for b in shown]
    token = {"ContinuationToken": shown[-1].name} if len(after_token) > len(shown) else {}
    return self.serialized(ActionResult({"Owner": OWNER, "Buckets": buckets, **token}))


list_instance_profiles = paged(IamResponse.list_instance_profiles, "InstanceProfiles")
list_instance_profiles_for_role = paged(IamResponse.list_instance_profiles_for_role, "InstanceProfiles")
list_role_policies = paged(IamResponse.list_role_policies, "PolicyNames")
