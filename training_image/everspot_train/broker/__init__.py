"""The broker of a booted image: a small program of root's that starts each job as a user of its own.

The agent asks over a socket that only its own user may open. A connection is one job: it ends when either side closes
it. Nothing here imports more than Python's own library, as all of it runs as root.
"""
