"""Everspot: everspot_train."""
