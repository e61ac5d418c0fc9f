"""The blocking clients for threads: how they wait is in `waiters`, how they send and receive bytes in
`sockets`.
"""
