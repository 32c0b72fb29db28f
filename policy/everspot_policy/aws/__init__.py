"""The rules for AWS."""
