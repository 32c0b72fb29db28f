"""What was spent: the ledger of instances, attempts, bills, budgets."""
