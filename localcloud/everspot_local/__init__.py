"""The local cloud: AWS on one machine, for Everspot's tests and demonstration. Nothing of the product imports it."""
