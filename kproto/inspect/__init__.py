"""Show Kafka traffic, also from capture files, as dissected frames, exchanges, diagrams and timelines.

An exchange is a request with its response.
"""
