"""Prepares a job on the instance before its program starts: datasets, packages, set-up and secrets."""
