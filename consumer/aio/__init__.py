"""The clients for asyncio. `waiters` lets tasks wait; `streams` sends and receives bytes."""
