"""The world of `kproto.testing`, by the name under which the tests of the engine know it."""

from __future__ import annotations

from kproto.testing.world import Client, Consumer, Producer, World, tp

__all__ = ["Client", "Consumer", "Producer", "World", "tp"]
