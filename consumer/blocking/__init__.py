"""The blocking clients for threads. `waiters` blocks waiting calls; `sockets` sends and receives bytes."""
