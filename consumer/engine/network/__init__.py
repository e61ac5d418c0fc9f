"""Connections to brokers: login, request timeouts, throttling and node selection, without sockets."""
