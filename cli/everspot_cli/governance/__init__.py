"""The ledger of a month for people who answer for money: exports, charges, and the cloud's own bill beside it."""
