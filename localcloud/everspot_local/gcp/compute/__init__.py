"""Compute Engine: networks, templates and instances, and the operations that change them."""
