"""What a month of the ledger is made of, who bears it, and what the cloud's own bill says of it."""
