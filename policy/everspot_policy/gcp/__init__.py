"""The rules for Google Cloud. A file here has the same subject as the file of that name for AWS."""
