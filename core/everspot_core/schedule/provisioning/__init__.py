"""Provisioning: launches for jobs, releases of launched instances, and departures from the standing fleets."""
