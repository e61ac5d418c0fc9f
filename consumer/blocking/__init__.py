"""For threads: the clients, how they wait (`threads`) and how they move bytes (`sockets`)."""
