"""Cluster metadata: the client's view of brokers, topics and leaders, and the requests that refresh it."""
