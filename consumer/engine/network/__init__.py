"""Connections to brokers, without sockets: authentication, timeouts, throttling and node selection."""
