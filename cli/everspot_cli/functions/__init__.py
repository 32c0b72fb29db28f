"""`everspot.job`: a Python function, such as one of a notebook, as a job."""
