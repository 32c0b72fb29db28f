"""What can be rented: instance types, markets, fleets and the prices that the catalogue knows."""
