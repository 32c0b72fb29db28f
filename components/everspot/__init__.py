"""Everspot: everspot."""
