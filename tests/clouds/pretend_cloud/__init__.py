"""A second cloud, which there is not: all that a cloud has to bring, in a folder of its own."""
