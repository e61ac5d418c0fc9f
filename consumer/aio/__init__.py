"""The clients for asyncio. `waiters` suspends calls that have to wait; `streams` sends and receives bytes."""
