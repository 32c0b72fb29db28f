"""The parts of Google Cloud that the local cloud stands in for."""
