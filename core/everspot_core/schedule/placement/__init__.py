"""Placement: which waiting job goes to which instance that is there already, and in which order jobs choose."""
