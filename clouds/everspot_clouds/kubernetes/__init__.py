"""Kubernetes: an instance is a pod on a node of its own, which Karpenter launches on EC2."""
