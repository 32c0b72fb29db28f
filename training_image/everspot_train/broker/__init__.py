"""The broker of a booted image: a small program of root that starts each job under its own user.

The agent connects over a socket that only its user may open. A connection is one job, which ends when either side
closes the connection. The package runs as root and imports only Python's standard library.
"""
