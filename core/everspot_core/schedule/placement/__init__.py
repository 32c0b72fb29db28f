"""Placement: which waiting job goes to which present instance, and in which order jobs choose."""
