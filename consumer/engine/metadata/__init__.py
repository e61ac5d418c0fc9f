"""Cluster metadata: the client's view of brokers, topics and leaders, and its refreshes."""
