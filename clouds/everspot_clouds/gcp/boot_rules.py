"""The facts about Google Cloud that an instance needs before it has loaded anything else: the part of `rules` that
needs only the standard library."""

from datetime import timedelta

MANIFEST_KEY = "everspot-manifest"
"""The instance metadata's key of the manifest."""

TRUSTED = timedelta(seconds=25)
"""How much of the time between the ACPI signal that ends a Spot VM and its end is counted on, market time: `rules` has
the whole of it, which is best effort."""
