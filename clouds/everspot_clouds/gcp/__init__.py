"""Adapter to Google Cloud. This file imports nothing, so that the metadata reader works without a client."""
