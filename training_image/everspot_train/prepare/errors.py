"""The error of a failed preparation."""


class NotReady(Exception):
    """A failed preparation. The message is one sentence for the job's author: the problem, and how to fix it."""
