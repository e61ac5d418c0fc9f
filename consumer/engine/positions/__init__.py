"""Positions of partitions: their states, offset lookup, validation and seeks."""
