"""A probe of a cluster: small jobs that prove what only an instance can, one for each market."""
