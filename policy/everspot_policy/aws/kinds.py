"""Resource types that several rules look at."""

INSTANCE = "aws:ec2/instance:Instance"
SPOT_INSTANCE = "aws:ec2/spotInstanceRequest:SpotInstanceRequest"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
CONFIGURATION = "aws:ec2/launchConfiguration:LaunchConfiguration"
SINGLE = (INSTANCE, SPOT_INSTANCE)
"""Instances that are declared one by one."""
LAUNCHES = (*SINGLE, TEMPLATE, CONFIGURATION)
"""Everything that says how an instance is launched."""

FLEET = "aws:ec2/fleet:Fleet"
SPOT_FLEET = "aws:ec2/spotFleetRequest:SpotFleetRequest"
GROUP = "aws:autoscaling/group:Group"
VOLUME = "aws:ebs/volume:Volume"

BUCKETS = ("aws:s3/bucket:Bucket", "aws:s3/bucketV2:BucketV2")
"""A bucket's two spellings."""


def both_versions(name: str) -> tuple[str, str]:
    """Return the two spellings of a part of a bucket: `aws:s3/bucketPolicy:BucketPolicy`, and with V2 after the
    name."""
    stem = name[0].lower() + name[1:]
    return f"aws:s3/{stem}:{name}", f"aws:s3/{stem}V2:{name}V2"
