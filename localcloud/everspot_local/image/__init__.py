"""The training image, baked on this machine: layers of a root tree, made by the product's own provisioning script."""
