"""The market: its time, pools and prices, quotas and records. It knows no cloud."""
