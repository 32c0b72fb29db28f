"""EventBridge: the events of EC2, and what the service refuses."""
