"""Rules over the objects of a Kubernetes cluster."""
