"""What a script, a test or a person does to the market and its machines. It knows no cloud."""
