"""Everspot: everspot_cli."""
