"""Resource types that several rules look at."""

INSTANCE = "gcp:compute/instance:Instance"
FROM_TEMPLATE = "gcp:compute/instanceFromTemplate:InstanceFromTemplate"
TEMPLATES = (
    "gcp:compute/instanceTemplate:InstanceTemplate",
    "gcp:compute/regionInstanceTemplate:RegionInstanceTemplate",
)
LAUNCHES = (INSTANCE, *TEMPLATES)
"""Everything that says in full how an instance is launched."""
GROUPS = (
    "gcp:compute/instanceGroupManager:InstanceGroupManager",
    "gcp:compute/regionInstanceGroupManager:RegionInstanceGroupManager",
)
BUCKET = "gcp:storage/bucket:Bucket"
MEMBERS = ("gcp:*:*IAMMember", "gcp:*:*IamMember", "gcp:*:*IAMBinding", "gcp:*:*IamBinding")
"""Grants of a role to one member or to several, of whatever it is."""
POLICIES = ("gcp:*:*IAMPolicy", "gcp:*:*IamPolicy")
"""All grants of something, as one document."""
