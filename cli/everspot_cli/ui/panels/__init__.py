"""What each part of the page shows: pure functions from what was read to what the templates write down."""
