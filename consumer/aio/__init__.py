"""The clients for asyncio: how they wait is in `waiters`, how they send and receive bytes in `streams`."""
