"""Adapter to Amazon Web Services. This file imports nothing, so that the metadata reader works without boto3."""
