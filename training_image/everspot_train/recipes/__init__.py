"""Training programs that come with Everspot; a job names one as `recipe` instead of bringing code."""
