"""A cluster among its peers: the jobs that it sends to them, and the jobs that it takes."""
