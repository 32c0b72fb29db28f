"""Stands in for IAM and the Resource Manager: service accounts, custom roles, policies, and who may do what."""
