"""The blocking clients for threads. `waiters` makes calls wait; `sockets` sends and receives bytes."""
