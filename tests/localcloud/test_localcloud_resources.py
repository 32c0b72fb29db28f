"""The upstream provider's calls for resources, which moto alone cannot serve."""

from typing import Any


def test_a_bucket_whose_versioning_was_suspended_can_be_emptied(kit: Any) -> None:
    s3 = kit.client("s3")
    s3.create_bucket(Bucket="data")
    s3.put_bucket_versioning(Bucket="data", VersioningConfiguration={"Status": "Enabled"})
    s3.put_object(Bucket="data", Key="part", Body=b"1")
    s3.delete_object(Bucket="data", Key="part")
    s3.put_object(Bucket="data", Key="other", Body=b"2")
    s3.put_bucket_versioning(Bucket="data", VersioningConfiguration={"Status": "Suspended"})
    listed = s3.list_object_versions(Bucket="data")
    versions = [{"Key": v["Key"], "VersionId": v["VersionId"]} for v in listed["Versions"] + listed["DeleteMarkers"]]
    assert len(versions) == 3
    assert not s3.delete_objects(Bucket="data", Delete={"Objects": versions}).get("Errors")
    versions_left = s3.list_object_versions(Bucket="data")
    assert "Versions" not in versions_left and "DeleteMarkers" not in versions_left
    s3.delete_bucket(Bucket="data")
