"""IAM: the policies at the door of every service, and what IAM itself refuses."""
