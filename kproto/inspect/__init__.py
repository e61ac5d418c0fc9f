"""What people look at: conversations between clients and brokers, as they go by."""
