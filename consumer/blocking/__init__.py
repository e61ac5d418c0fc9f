"""The blocking clients for threads. `waiters` lets threads wait; `sockets` sends and receives bytes."""
