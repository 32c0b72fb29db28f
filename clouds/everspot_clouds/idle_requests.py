"""What the store's requests cost in a month in which nothing runs. `python -m bench idle` counts them."""

REQUESTS_USD_A_MONTH = 1.12
"""Of a scheduler without jobs and agents, by the list prices of S3 in us-east-1: $0.005 for 1,000 of LIST and PUT, and
$0.0004 for 1,000 of GET. Cloud Storage's operations of class A and B cost as much."""
