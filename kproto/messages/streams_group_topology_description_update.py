"""StreamsGroupTopologyDescriptionUpdate (key 93): send the description of a group's topology (KIP-1331)."""

from __future__ import annotations

from ..wire.message import Message, Struct
from ..wire.types import Int8, Int16, Int32, String


class StreamsGroupTopologyDescriptionUpdateRequest(Message, api_key=93, versions="0", flexible="0+"):
    group_id: String
    member_id: String
    # The epoch of the topology that is described.
    topology_epoch: Int32
    topology_description: TopologyDescription


class TopologyDescription(Struct):
    subtopologies: list[TopologyDescriptionSubtopology]
    global_stores: list[TopologyDescriptionGlobalStore]


class TopologyDescriptionSubtopology(Struct):
    subtopology_id: String
    nodes: list[TopologyDescriptionNode]


class TopologyDescriptionGlobalStore(Struct):
    source: TopologyDescriptionNode
    processor: TopologyDescriptionNode


class TopologyDescriptionNode(Struct):
    name: String
    # The type: 1 source, 2 processor, 3 sink.
    node_type: Int8
    # The topics of a source node; empty if they are chosen at run time.
    source_topics: list[String]
    # The topic of a sink node; null if it is chosen at run time.
    sink_topic: String | None = None
    # The state stores of a processor.
    stores: list[String]
    # The nodes that get the output of this node.
    successors: list[String]


class StreamsGroupTopologyDescriptionUpdateResponse(Message, api_key=93, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = None
