"""What of Google Cloud the local cloud stands in for."""
