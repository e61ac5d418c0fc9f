"""A transaction coordinator with scripted error codes.

`Script` answers requests in a simulated cluster. `Coordinator` answers requests on a real socket.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from contextlib import suppress
from typing import Any

from kproto.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kproto.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from kproto.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from kproto.messages.end_txn import EndTxnRequest, EndTxnResponse
from kproto.messages.find_coordinator import Coordinator as Found
from kproto.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kproto.messages.headers import decode_request, encode_response
from kproto.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kproto.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kproto.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kproto.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kproto.wire.frame import Frames, frame

STORY = (
    FindCoordinatorRequest,
    InitProducerIdRequest,
    AddPartitionsToTxnRequest,
    ProduceRequest,
    AddOffsetsToTxnRequest,
    TxnOffsetCommitRequest,
    EndTxnRequest,
)


EMPTY: dict[type, Any] = {
    InitProducerIdRequest: InitProducerIdResponse(
        throttle_time_ms=0, error_code=0, producer_id=-1, producer_epoch=-1
    ),
    AddPartitionsToTxnRequest: AddPartitionsToTxnResponse(
        throttle_time_ms=0, results_by_topic_v3_and_below=[]
    ),
    TxnOffsetCommitRequest: TxnOffsetCommitResponse(throttle_time_ms=0, topics=[]),
}


class Script:
    """Records and answers the requests of transactional producers.

    `refusals` maps a kind of request to its next error codes. A request without a code succeeds.

    If `second` is true, the coordinator supports transaction version 2 (KIP-890).
    """

    def __init__(self, *, second: bool = False, place: tuple[str, int] = ("", 0)) -> None:
        self.second = second
        self.place = place
        self.refusals: dict[type, list[int]] = {}
        # The kinds of requests whose next response contains neither an error nor a result.
        self.leaves_out: set[type] = set()
        self.asked: list[Any] = []
        self.epoch = -1

    def answer(self, client: Any, request: Any, version: int) -> Any:
        if isinstance(request, ApiVersionsRequest):
            return self.versions()
        if not isinstance(request, STORY):
            return None
        self.asked.append(request)
        refusals = self.refusals.get(type(request))
        code = refusals.pop(0) if refusals else 0
        if type(request) in self.leaves_out:
            self.leaves_out.discard(type(request))
            return EMPTY[type(request)]
        match request:
            case FindCoordinatorRequest():
                host, port = self.place
                key = request.coordinator_keys[0]
                coordinator = Found(
                    key=key, node_id=1, host=host, port=port, error_code=code, error_message=None
                )
                return FindCoordinatorResponse(coordinators=[coordinator])
            case InitProducerIdRequest():
                self.epoch += not code
                self.epoch = max(self.epoch, request.producer_epoch + 1)
                return InitProducerIdResponse(
                    throttle_time_ms=0, error_code=code, producer_id=7, producer_epoch=self.epoch
                )
            case AddPartitionsToTxnRequest():
                topics = [
                    AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(
                                partition_index=index, partition_error_code=code
                            )
                            for index in topic.partitions
                        ],
                    )
                    for topic in request.v3_and_below_topics
                ]
                return AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_topic_v3_and_below=topics)
            case ProduceRequest():
                answers = [
                    TopicProduceResponse(
                        name=topic.name,
                        topic_id=topic.topic_id,
                        partition_responses=[
                            PartitionProduceResponse(index=entry.index, error_code=code, base_offset=0)
                            for entry in topic.partition_data
                        ],
                    )
                    for topic in request.topic_data
                ]
                return ProduceResponse(responses=answers)
            case AddOffsetsToTxnRequest():
                return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=code)
            case TxnOffsetCommitRequest():
                parts = [
                    TxnOffsetCommitResponseTopic(
                        name=topic.name,
                        topic_id=topic.topic_id,
                        partitions=[
                            TxnOffsetCommitResponsePartition(
                                partition_index=p.partition_index, error_code=code
                            )
                            for p in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ]
                return TxnOffsetCommitResponse(throttle_time_ms=0, topics=parts)
            case _:
                self.epoch += self.second and not code
                name = {"producer_id": 7, "producer_epoch": self.epoch} if self.second and not code else {}
                return EndTxnResponse(throttle_time_ms=0, error_code=code, **name)

    def versions(self) -> ApiVersionsResponse:
        """Return the API versions of Kafka 4, with or without transaction version 2 (KIP-890)."""
        known = (*STORY, ApiVersionsRequest, MetadataRequest)
        keys = [
            ApiVersion(
                api_key=kind.__api_key__ or 0,
                min_version=kind.__versions__.min,
                max_version=kind.__versions__.max,
            )
            for kind in known
        ]
        level = FinalizedFeatureKey(
            name="transaction.version", max_version_level=2 if self.second else 1, min_version_level=1
        )
        return ApiVersionsResponse(error_code=0, api_keys=keys, finalized_features=[level])

    def kinds(self) -> list[str]:
        """Return the kinds of the requests that arrived since the last call of `kinds`."""
        requests, self.asked[:] = (
            [type(request).__name__.removesuffix("Request") for request in self.asked],
            [],
        )
        return requests

    def ends(self) -> list[bool]:
        """Return the outcome of each transaction: True for a commit, False for an abort."""
        return [request.committed for request in self.asked if isinstance(request, EndTxnRequest)]


class Coordinator(Script):
    """A broker on a socket, with a topic `t` that has two partitions. It runs until the `with` block ends.

    Requests of the kinds in `held` are recorded, and answered only after a call of `let_go`.
    """

    def __init__(self, *, second: bool = False) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        host, port = self._listener.getsockname()
        super().__init__(second=second, place=(host, port))
        self.bootstrap = f"{host}:{port}"
        self.held: set[type] = set()
        self._changed = threading.Condition()
        # A connection's responses are sent in the order of its requests. A held response therefore delays all
        # later ones.
        self._waiting: dict[socket.socket, deque[tuple[type, bytes]]] = {}
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Coordinator:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def down(self) -> None:
        """Close all sockets, as if the broker had been killed."""
        for sock in (self._listener, *self._sockets):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def was_asked(self, kind: type, times: int = 1) -> None:
        """Wait until `times` requests of this kind have arrived."""
        with self._changed:
            assert self._changed.wait_for(
                lambda: sum(isinstance(request, kind) for request in self.asked) >= times, 20
            ), f"{kind.__name__} never came: {self.asked}"

    def let_go(self, kind: type) -> None:
        """Answer the held requests of this kind. Later requests of this kind are answered immediately."""
        with self._changed:
            self.held.discard(kind)
            for sock, waiting in self._waiting.items():
                self._answer(sock, waiting)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                self._sockets.append(sock)
                threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        frames = Frames()
        with suppress(OSError):
            while data := sock.recv(65536):
                for body in frames.feed(data):
                    with self._changed:
                        self._heard(sock, body)
                        self._changed.notify_all()

    def _heard(self, sock: socket.socket, body: bytes) -> None:
        envelope = decode_request(body)
        request, version, number = envelope.request, envelope.version, envelope.header.correlation_id
        if isinstance(request, MetadataRequest):
            response: Any = self._metadata()
        else:
            response = self.answer(None, request, version)

        waiting = self._waiting.setdefault(sock, deque())
        waiting.append((type(request), frame(encode_response(response, version, number))))
        self._answer(sock, waiting)

    def _answer(self, sock: socket.socket, waiting: deque[tuple[type, bytes]]) -> None:
        with suppress(OSError):
            while waiting and waiting[0][0] not in self.held:
                sock.sendall(waiting.popleft()[1])

    def _metadata(self) -> MetadataResponse:
        host, port = self.place
        partitions = [
            MetadataResponsePartition(
                error_code=0, partition_index=index, leader_id=1, replica_nodes=[1], isr_nodes=[1]
            )
            for index in range(2)
        ]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host=host, port=port)],
            topics=[MetadataResponseTopic(error_code=0, name="t", partitions=partitions)],
        )
