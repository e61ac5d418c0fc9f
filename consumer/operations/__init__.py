"""What a consumer, a producer and a cluster client do, written once for threads and for asyncio."""
