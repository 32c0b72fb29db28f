"""The addresses of the clouds' metadata services, for what closes them to jobs. Nothing else is imported."""

METADATA_ADDRESSES = ("169.254.169.254", "fd00:ec2::254", "fd20:ce::254")
"""EC2 User Guide, "Access instance metadata for an EC2 instance"; Compute Engine, "About VM metadata"."""
