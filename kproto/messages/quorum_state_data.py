"""QuorumStateData: the file `quorum-state`, in which a KRaft node keeps its vote and the leader (KIP-595).

The file contains the JSON form of the message, with the additional key `data_version`.
"""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import ZERO_UUID, Int32, Int64, String, Uuid


class QuorumStateData(Message, versions="0-1", flexible="0+"):
    cluster_id: String = field("0", default="")
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1
    # The candidate that the node voted for in this epoch; -1 if there is none.
    voted_id: Int32 = -1
    # The id of the log directory of this candidate (KIP-853).
    voted_directory_id: Uuid = field("1+", default=ZERO_UUID)
    applied_offset: Int64 = field("0", default=0)
    # The voters. From v1 on they are in the log, as a VotersRecord (KIP-853).
    current_voters: list[Voter] | None = field("0", default=[])


class Voter(Struct):
    voter_id: Int32
