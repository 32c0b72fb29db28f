"""Amazon Web Services. Nothing is imported here: the metadata reader comes without boto3."""
