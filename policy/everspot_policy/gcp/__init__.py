"""The rules for Google Cloud. A file here has the twins of the file of that name for AWS."""
