"""The engine of the producer, without sockets: batching, sending, retries and transactions."""
