"""EC2 Auto Scaling: groups and instance refreshes."""
