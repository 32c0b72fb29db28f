"""The governance of a month: the ledger's costs, who bears them, and the cloud's own bill."""
