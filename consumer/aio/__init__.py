"""The clients for asyncio. `waiters` suspends tasks until the next change; `streams` does the network I/O."""
