"""The metrics that a client pushes to brokers (KIP-714): when, in which form, and to which broker."""
