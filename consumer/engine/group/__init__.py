"""The consumer's part in its group: membership, commits and the group's coordinator."""
