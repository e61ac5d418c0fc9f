"""The client's side of a consumer group: membership, commits and the lookup of the coordinator."""
