"""The scheduler: assigns jobs to instances, acts on the cloud's messages, and keeps the ledger of costs."""
