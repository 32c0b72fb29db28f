"""moto's EC2 with a Spot market: fleets that heal, pools that run dry, instances that come and go in their time."""
