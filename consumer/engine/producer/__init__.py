"""The producer: accumulation, sending, retries and transactions, without sockets."""
