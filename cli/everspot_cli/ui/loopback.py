"""This machine's own address, on which the page is served. Nothing else of the product names it."""

ADDRESS = "127.0.0.1"
NAMES = (ADDRESS, "localhost")
"""What a browser on this machine may call it."""
