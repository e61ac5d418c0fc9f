"""Lesson 000 apart from its race: configuration, linking, output, and every order of the events.

See docs/lessons/000-offset-minus-1000.md. The lesson replays a problem that an engineer described in a
document ("the document").
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import permutations
from typing import Any, Final

from consumer import Consumer as BlockingConsumer
from consumer.engine import events as ev

from ..broker.server import running
from ..errors import IllegalState
from ..models import contract, librdkafka
from ..models.common import OffsetToCommit, offset_commit_request
from ..models.librdkafka import conf
from ..models.librdkafka.constants import INVALID_ARG, UNKNOWN_PARTITION
from ..testing.concurrent_calls import first_error
from ..testing.world import World
from .offset_minus_1000 import COMMITTED, END, NIL, TP, WANTED, PollingHandler
from .parameters import GROUP
from .scenario import ScenarioRun, offsets, scenario

SOUGHT = 3
# What this scenario prints for a call that returns no error.
NOTHING = "nothing"
# The texts of librdkafka's errors, which fmt.Println prints.
TEXTS: Final[dict[str, str]] = dict((INVALID_ARG, UNKNOWN_PARTITION))
CALLS: Final = ("subscribe", "assign", "seek", "assign")
# The properties of the document's getConsumer.
GET_CONSUMER: Final = {
    "metadata.broker.list": "localhost:9092",
    "group.id": "test",
    "client.id": "handler",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "earliest",
    "enable.partition.eof": True,
    "debug": "msg",
}
# The debug contexts that the comment in getConsumer lists.
CONTEXTS: Final = (
    "generic, broker, topic, metadata, feature, queue, msg, protocol, cgrp, security, fetch, interceptor, "
    "plugin, consumer, admin, eos, mock, assignor, conf, all"
)


def _write_and_commit(world: World) -> None:
    """Write the messages of the lesson, and commit the group's offset."""
    world.write("test", 0, *[f"m{number}" for number in range(END)])
    world.send_as_operator(offset_commit_request("test", -1, "", None, {TP: OffsetToCommit(COMMITTED)}), 2)


# -- every order ------------------------------------------------------------------------------------------


def _orders(words: str) -> Iterator[str]:
    """Yield the orders of `words` with "joined" after "subscribe", and "seek" after "assign"."""
    for order in permutations(words.split()):
        if order.index("subscribe") < order.index("joined") and order.index("assign") < order.index("seek"):
            yield " ".join(order)


def _play(run: ScenarioRun, order: str, kind: str) -> tuple[list[int], list[str]]:
    """Play one order of events; return the offsets read after the last setup call, and the rejected calls.

    `kind` is librdkafka or kproto. The setup calls are subscribe, assign and seek.
    """
    world = run.world({"test": 1}, {"group.initial.rebalance.delay.ms": 200}, trace=False)
    _write_and_commit(world)
    member: Any
    subscribe: Any
    assign: Any
    if kind == "librdkafka":
        member = world.join("handler", librdkafka, group_id="test", reset="earliest", auto_commit=False)
        subscribe, assign = contract.SubscribeCalled(("test",)), contract.AssignCalled({TP: WANTED})
    else:
        member = world.join(
            "handler", group_id="test", auto_offset_reset="earliest", enable_auto_commit=False
        )
        subscribe, assign = ev.Subscribe(frozenset(["test"]), None), ev.Assign({TP: WANTED})
    world.run(50)
    refused: list[str] = []
    read_before = 0
    for word in order.split():
        try:
            if word == "subscribe":
                member.do(subscribe)
            elif word == "joined":
                world.run(400)
            elif word == "assign":
                member.do(assign)
            elif word == "seek":
                member.seek(TP, SOUGHT)
            elif word == "unsubscribe":
                _unsubscribe(world, member)
            elif kind == "librdkafka":
                member.poll_once(20)
                world.run(21)
            else:
                member.poll()
                world.run(20)
        except IllegalState:
            refused.append(word)
        if word in ("subscribe", "assign", "seek"):
            read_before = len(member.records)
    member.resume_polling()
    world.run(700)
    return [record.offset for record in member.records[read_before:]], refused


def _unsubscribe(world: World, member: Any) -> None:
    """Unsubscribe, and wait for the end of the call, as the call of a blocking consumer does."""
    token = member.unsubscribe()
    world.run(5_000, until=lambda: token in member.done)


@scenario(
    "S0-15",
    "Every order of subscribe, join, assign, seek, poll: in kproto the last accepted call wins",
    says="(what the document asks for: a program whose messages come from the offset it asked for)",
    given="5 of 9 messages committed, assign at 2, seek to 3, and a join that ends at any point",
    when="subscribe, the end of the join, assign, seek and a poll come in each of their 30 orders; in 20 "
    "more, assign follows an unsubscribe whose join is in progress or complete",
    then="in kproto messages come from 3 each time, and incompatible calls are rejected; in librdkafka a "
    "seek that was the last call and returned no error is overridden by the event in some orders",
    takes=GROUP,
)
def every_order(run: ScenarioRun) -> None:
    orders = list(_orders("subscribe joined assign seek poll"))
    offsets_from_seek = list(range(SOUGHT, END))
    overridden = 0
    for order in orders:
        received, _ = _play(run, order, "librdkafka")
        last = max(("subscribe", "assign", "seek"), key=order.index)
        overridden += last == "seek" and received != offsets_from_seek
    run.result("orders", len(orders))
    run.result("librdkafka: the seek was the last call, and the event overrides it", overridden)
    run.claim(
        "librdkafka overrides the last call in some orders, and not in all", 0 < overridden < len(orders)
    )
    kproto_results = {order: _play(run, order, "kproto") for order in orders}
    refused = sum(len(words) for _, words in kproto_results.values())
    run.result(
        "kproto: messages come from 3",
        sum(received == offsets_from_seek for received, _ in kproto_results.values()),
    )
    run.result("kproto: calls refused", refused)
    run.claim(
        "kproto: the last accepted call wins in every order",
        all(offsets_read == offsets_from_seek for offsets_read, _ in kproto_results.values()),
    )
    run.claim(
        "kproto rejects one call in each: assign beside subscribe, or the other way round",
        refused == len(orders),
    )
    later = map(" ".join, permutations(("joined", "unsubscribe", "assign", "seek", "poll")))
    rejoined = [
        order for order in later if order.index("unsub") < order.index("assign") < order.index("seek")
    ]
    rejoined_results = [_play(run, f"subscribe {order}", "kproto") for order in rejoined]
    run.result(
        "kproto: unsubscribed first, orders and rejected calls",
        [len(rejoined), sum(len(words) for _, words in rejoined_results)],
    )
    run.claim(
        "the pending assignment is dropped with the subscription",
        all(result == (offsets_from_seek, []) for result in rejoined_results),
    )


# -- configuration and linking ----------------------------------------------------------------------------


@scenario(
    "S0-17",
    "librdkafka's properties by name: the document's are accepted, aliases work, an unknown name is an error",
    says="getConsumer sets eight properties; a comment lists what debug may be.",
    given="the names, aliases and allowed values of librdkafka's consumer properties",
    when="getConsumer's properties are parsed and a consumer runs with them; then each debug context, the "
    "other name of the broker list, a misspelled name, an invalid bool, and an unknown debug context",
    then="it reads to the end, reports the end, and commits nothing; all twenty contexts exist; both "
    "names set one property; the last three are rejected, in librdkafka's words",
    takes=GROUP,
)
def properties(run: ScenarioRun) -> None:
    settings = conf.read(GET_CONSUMER)
    run.result("getConsumer", {name: settings.properties[name] for name in sorted(settings.properties)})
    world = run.world({"test": 1})
    _write_and_commit(world)
    observed_before = len(world.observations)
    member = world.join("handler", librdkafka, topics=["test"], **_member_options(settings))
    world.run(5_000)
    member.close()
    world.run(1_000)
    stored = [
        observation for observation in world.observations[observed_before:] if observation.kind == "stored"
    ]
    ends = [report.name for report in member.reports if report.name == "_PARTITION_EOF"]
    run.result("records, reported ends, commits", [len(member.records), len(ends), len(stored)])
    run.claim("it runs as configured", (offsets(member, TP), len(ends)) == (list(range(COMMITTED, END)), 1))
    run.claim("nothing is committed", not stored)
    contexts: Any = conf.read({"debug": CONTEXTS}).properties["debug"]
    run.result("debug contexts", contexts)
    run.claim("each context of the comment exists", len(contexts) == 20 and type(contexts) is tuple)
    later_settings = {
        name.replace("metadata.broker.list", "bootstrap.servers"): GET_CONSUMER[name] for name in GET_CONSUMER
    }
    run.claim(
        "metadata.broker.list is bootstrap.servers", conf.read(later_settings).bootstrap == settings.bootstrap
    )
    for name, value in (
        ("metadata.brokers.list", "localhost"),
        ("enable.auto.commit", "no"),
        ("debug", "mesg"),
    ):
        message = _rejection(name, value)
        run.result(f"{name}={value}", message)
        run.claim(f"{name}={value} is rejected by its name", name in message)


def _member_options(settings: conf.Conf) -> dict[str, Any]:
    return {name: value for name, value in conf.as_options(settings).items() if name != "client_id"}


def _rejection(name: str, value: object) -> str:
    """Return librdkafka's error for a property, or "" if the value is accepted."""
    try:
        conf.read({name: value})
    except conf.PropertyRejected as error:
        return error.errstr
    return ""


@scenario(
    "S0-18",
    "Linking: librdkafka is a library per platform, kproto is source code",
    says="cgo links a static library for each platform; for Apple's M1 there was none, and -tags "
    "dynamic with pkg-config takes the system's.",
    given="kproto as it is loaded here, with librdkafka's model",
    when="the origin of each loaded module is inspected",
    then="each is a Python source file: nothing to link, to compile or to choose per platform",
    fixed="it inspects modules, and runs no group",
)
def pure_python(run: ScenarioRun) -> None:
    origins: dict[str, list[str]] = {}
    for name, module in sorted(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if name.split(".")[0] in ("kproto", "consumer") and spec is not None and spec.origin is not None:
            origins.setdefault(spec.origin.rpartition(".")[2], []).append(name)
    run.result("modules", {kind: len(names) for kind, names in origins.items()})
    run.claim("all of them are source files", set(origins) == {"py"})
    run.claim("librdkafka's model is among them", librdkafka.__name__ in origins.get("py", []))


# -- the output, and the threads that may call the consumer --------------------------------------------------


@scenario(
    "S0-19",
    "Errors are printed and the handler continues; a poll without events prints <nil>",
    says="Each call's error is printed with fmt.Println, and the program continues; Poll may return nil.",
    given="a handler whose subscribe names a topic twice, whose assign has a meaningless offset, and "
    "whose seek comes too early",
    when="it continues regardless: assigns at 2, and polls past the end",
    then="the texts of _INVALID_ARG, twice, and of _UNKNOWN_PARTITION are printed; messages come from 2; "
    "after the last one, polls print <nil>",
    fixed="its partition is assigned by hand, without a group",
)
def printed(run: ScenarioRun) -> None:
    handler = PollingHandler(run, join_ms=0, extra={"enable.partition.eof": False})
    lines: list[str] = []

    def call(name: str, event: contract.ModelEvent) -> None:
        before = len(handler.app.reports)
        handler.app.do(event)
        new = [TEXTS[report.name] for report in handler.app.reports[before:]]
        lines.append(f"{name}: {', '.join(new) or NOTHING}")
        run.moment(f"{name}: prints {', '.join(new) or NOTHING}", "handler")

    call("subscribe", contract.SubscribeCalled(("test", "test")))
    call("assign", contract.AssignCalled({TP: -5}))
    call("seek", contract.SeekCalled(TP, WANTED))
    call("assign", contract.AssignCalled({TP: WANTED}))
    events: list[str] = []
    for _ in range(10):
        before = len(handler.app.records)
        handler.poll(400)
        events.append(str(len(handler.app.records) - before or NIL))
    run.result("printed", lines)
    run.result("messages of each poll", events)
    texts = [TEXTS["_INVALID_ARG"], TEXTS["_INVALID_ARG"], TEXTS["_UNKNOWN_PARTITION"], NOTHING]
    refused = [f"{name}: {text}" for name, text in zip(CALLS, texts, strict=True)]
    run.claim("each rejected call has its error, and the next one succeeds", lines == refused)
    run.claim("messages come from 2", offsets(handler.app, TP) == list(range(WANTED, END)))
    run.claim("then polls return nothing", events[-1] == NIL)


@scenario(
    "S0-20",
    "Two requests at once: librdkafka serialises calls, not requests; kproto rejects the second thread",
    says="The handler of http.HandleFunc uses one consumer for all requests: Go runs each request in its "
    "own goroutine.",
    given="two requests, one that wants messages from 2, one that wants them from 7",
    when="their calls alternate; with kproto a second thread polls while the first is inside poll",
    then="each call is accepted without an error, and both requests get the messages of the last caller; "
    "kproto's second thread gets an error that another thread is inside poll()",
    fixed="its partition is assigned by hand, without a group",
)
def two_requests(run: ScenarioRun) -> None:
    handler = PollingHandler(run, join_ms=3_000, extra={"enable.partition.eof": False})
    wants = {"request A": WANTED, "request B": 7}
    for call in ("assign", "seek"):
        for who, offset in wants.items():
            run.moment(f"{call} {offset}", who)
            handler.app.do(
                contract.AssignCalled({TP: offset}) if call == "assign" else contract.SeekCalled(TP, offset)
            )
    got: dict[str, list[int]] = {who: [] for who in wants}
    for _ in range(3):
        for who in wants:
            before = len(handler.app.records)
            handler.poll(400)
            got[who] += [record.offset for record in handler.app.records[before:]]
    run.result("librdkafka gave", got)
    run.claim("no call failed", not [report for report in handler.app.reports if report.kind == "error"])
    run.claim("no request got what A wanted", offsets(handler.app, TP) == [7, 8])
    message = _second_thread()
    run.result("kproto says", message)
    run.claim("another thread is inside poll()", "another thread is inside poll()" in message)


def _second_thread() -> str:
    """Return the error of a poll in a second thread while the first thread is inside poll."""
    with running({TP.topic: 1}) as server:
        consumer = BlockingConsumer(server.bootstrap, group_id="test", client_id="handler")
        consumer.subscribe([TP.topic])
        return first_error(lambda: consumer.poll(1.0), lambda: consumer.poll(0), consumer.close)
