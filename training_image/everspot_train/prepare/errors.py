"""The error of a failed preparation."""


class NotReady(Exception):
    """One sentence for the job's author: what is missing or wrong, and what to do about it."""
