"""The instances' metadata services."""
