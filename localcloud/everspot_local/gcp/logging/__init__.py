"""Stands in for Cloud Logging: entries about instances, and the sinks that export them. Entries are not stored."""
