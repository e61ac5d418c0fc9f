"""Readable views of Kafka traffic: dissected frames, captures, exchanges, diagrams and timelines."""
