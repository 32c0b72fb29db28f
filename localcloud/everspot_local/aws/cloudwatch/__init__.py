"""CloudWatch: what moto lacks of it."""
