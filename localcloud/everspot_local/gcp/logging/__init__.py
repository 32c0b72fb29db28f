"""Stands in for Cloud Logging: what the cloud tells of instances, and sinks that pass it on; entries are not kept."""
