"""Cluster metadata: what the client knows of brokers, topics and leaders, and how this is refreshed."""
