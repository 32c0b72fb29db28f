"""A cluster among its peers: the jobs that it sends to them, and those that it takes."""
