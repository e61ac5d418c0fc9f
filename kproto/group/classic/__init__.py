"""The classic group protocol (JoinGroup, SyncGroup): the coordinator and the member."""

from __future__ import annotations
