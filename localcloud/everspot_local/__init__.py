"""Everspot: everspot_local."""
