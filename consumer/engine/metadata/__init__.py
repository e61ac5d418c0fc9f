"""Cluster metadata: what this client knows of brokers, topics and leaders, and how it is refreshed."""
