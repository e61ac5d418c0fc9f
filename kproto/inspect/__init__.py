"""Views of Kafka traffic: dissected frames, captures, exchanges (requests with responses), diagrams,
timelines.
"""
