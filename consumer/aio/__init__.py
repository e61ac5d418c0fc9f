"""The clients for asyncio. `waiters` suspends tasks until the next change; `streams` sends and receives
bytes.
"""
