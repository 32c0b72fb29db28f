"""The web UI, `everspot ui`: the command's tables in a browser, kept up to date."""
