"""The operations of consumers, producers and cluster clients, written once for threads and for asyncio."""
