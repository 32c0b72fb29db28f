"""The market: its time, its pools and prices, its quotas and its books. It knows no cloud."""
