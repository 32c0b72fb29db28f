"""Checks of what users write: problems with their paths, types of fields, YAML with line numbers."""
