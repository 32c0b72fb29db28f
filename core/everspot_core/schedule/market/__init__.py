"""The market for capacity: how pools have behaved, their cost for a job, and the market that suits the job now.

The views of pools, from the widest to the narrowest:

- `federation.market.ClusterMarket`: the pools of another cluster, as published.
- `steering.MarketContext`: what the policy needs of either cluster.
- `stock.Stocks`: the pools of one view, by kind of job; `stock.Stock`: those that can hold jobs of one kind.
- `offers.Offers`: a stock's pools with their cost for one job.
"""
