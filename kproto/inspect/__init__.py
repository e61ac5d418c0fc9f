"""Show Kafka traffic as dissected frames, captures, exchanges, diagrams and timelines.

An exchange is a request with its response.
"""
