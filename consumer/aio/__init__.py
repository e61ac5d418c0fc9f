"""The clients for asyncio. `waiters` makes their calls wait; `streams` sends and receives bytes."""
