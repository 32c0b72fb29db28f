"""A job: its spec, its record and lease, its time, its checkpoints, and the instances that it fits."""
