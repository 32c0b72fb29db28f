"""Stands in for Cloud Storage: buckets and objects over its XML API. No JSON API, no IAM, no versions of the past."""
