"""Compute Engine: networks, templates, instances, and what is done to them by operations."""
