"""The clients for asyncio. `waiters` suspends waiting calls; `streams` sends and receives bytes."""
