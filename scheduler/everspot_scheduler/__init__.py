"""Everspot: everspot_scheduler."""
