"""The page of `everspot ui`: what the command's tables tell, in a browser, kept up to date."""
