"""The error of a failed preparation."""


class NotReady(Exception):
    """One sentence for the job's author: the missing or wrong thing, and how to fix it."""
