"""EventBridge: what EC2 tells there, and what it refuses."""
