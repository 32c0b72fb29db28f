"""Capacity that can be rented: instance types, markets, fleets and the catalogue's prices."""
