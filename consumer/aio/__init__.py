"""For asyncio: the clients, how they wait (`loops`) and how they move bytes (`streams`)."""
