"""Everspot: everspot_store."""
