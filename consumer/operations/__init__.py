"""The operations of consumers, producers and admin clients, written once for threads and for asyncio."""
