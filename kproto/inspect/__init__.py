"""Show Kafka traffic: dissected frames, captures, exchanges (requests with responses), diagrams and
timelines.
"""
