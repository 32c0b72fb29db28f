"""Bakes the training image on this machine, as layers of a root tree, with the product's provisioning script."""
