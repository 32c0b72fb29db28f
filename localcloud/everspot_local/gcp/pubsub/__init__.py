"""Stands in for Pub/Sub: topics, pull subscriptions and their messages. No push, no order, no exactly-once delivery."""
