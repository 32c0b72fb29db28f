"""S3: what moto gets wrong, and what S3 refuses."""
