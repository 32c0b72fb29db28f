"""One module per group of commands; each registers its own."""
