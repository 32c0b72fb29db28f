"""AWS in front of the market and the machines: moto, held to what AWS refuses."""
