"""A pretend cloud in its own folder, with every part that a cloud has to provide."""
