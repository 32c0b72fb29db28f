"""This machine's own address. The web UI is served there. Nothing else of the product names it."""

ADDRESS = "127.0.0.1"
NAMES = (ADDRESS, "localhost")
"""The host names that a browser on this machine may use for it."""
