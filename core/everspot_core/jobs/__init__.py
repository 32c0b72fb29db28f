"""Jobs: specs, records and leases, timing, checkpoints, and the instances that a job fits."""
