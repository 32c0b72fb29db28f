"""The components of Google Cloud."""
