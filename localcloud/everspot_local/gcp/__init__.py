"""The parts of Google Cloud that the local cloud emulates."""
