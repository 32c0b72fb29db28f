"""Spending: the ledger of instances, attempts, bills, budgets."""
