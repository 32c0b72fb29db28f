"""The scheduler's figures, and the places where they go: Prometheus and the cloud."""
