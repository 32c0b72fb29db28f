"""Machines: process trees that begin and end as the market and their cloud say. They know no cloud."""
