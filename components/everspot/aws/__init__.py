"""The components of AWS."""
