"""Methods and arguments of other libraries, with the name of each in this library.

The names in this module are used only in errors: an error about another library's name suggests the
name in kproto.

All names are in snake_case. `unknown_method` converts names in camelCase, such as Java's method names.
`docs/coming-from/` has a table for each library.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Concatenate, Final, ParamSpec, cast

from kproto.errors import KprotoError

from .addresses import addresses
from .security.secret import HIDDEN, is_secret_value

P = ParamSpec("P")

_TRANSACTIONS = "use transaction, begin, commit, abort and send_offsets"

_CONNECTS_BY_ITSELF = 'not needed: clients connect by themselves, and "async with" or close() ends them'

_CLUSTER_ID = "use Admin(bootstrap).describe_cluster().cluster_id"
_USE_LISTENER = "listener, an object of a class that extends RebalanceListener"
_NO_NEW_PASSWORD = "not supported: create a new client, or use a sasl_oauth_token_provider for new tokens"

# Kind of object, such as a client or a delivery -> method of another library -> this library's method, or
# advice.
METHODS: Final[Mapping[str, Mapping[str, str]]] = {
    "consumer": {
        "seek_to_beginning": 'use seek_to("earliest")',
        "seek_to_end": 'use seek_to("latest")',
        "seek_to_committed": 'use seek_to("committed")',
        "beginning_offsets": 'use list_offsets({partition: "earliest"})',
        "end_offsets": 'use list_offsets({partition: "latest"})',
        "get_watermark_offsets": 'use list_offsets({partition: "earliest"}) and "latest"',
        "query_watermark_offsets": 'use list_offsets({partition: "earliest"}) and "latest"',
        "offsets_for_times": "use list_offsets({partition: milliseconds since 1970})",
        "last_stable_offset": 'use list_offsets({partition: "latest"}) with isolation_level="read_committed"',
        "highwater": "use high_watermark(partition)",
        "current_lag": "use lag(partition)",
        "partitions_for_topic": "use partitions_for(topic)",
        "topics": "use Admin(bootstrap).topics()",
        "list_topics": "use Admin(bootstrap).topics()",
        "consume": "use poll(seconds, max_records=count)",
        "getmany": "use poll(seconds)",
        "getone": 'use "async for record in consumer"',
        "start": _CONNECTS_BY_ITSELF,
        "stop": "use close()",
        "commit_sync": "use commit(offsets)",
        "incremental_assign": "not needed: the consumer does it, and calls the listener",
        "incremental_unassign": "not needed: the consumer does it, and calls the listener",
        "enforce_rebalance": "use rejoin(reason)",
        "unassign": "use unsubscribe()",
        "consumer_group_metadata": "use group_metadata()",
        "memberid": "use group_metadata().member_id",
        "bootstrap": _CONNECTS_BY_ITSELF,
        "bootstrap_connected": _CONNECTS_BY_ITSELF,
        "last_poll_timestamp": 'use metrics().value("last-poll-seconds-ago")',
        "cluster_id": _CLUSTER_ID,
        "set_sasl_credentials": _NO_NEW_PASSWORD,
    },
    "producer": {
        "max_usable_produce_magic": "not needed: the record format follows the versions of the broker",
        "cluster_id": _CLUSTER_ID,
        "set_sasl_credentials": _NO_NEW_PASSWORD,
        "produce": "use send(topic, value, key)",
        "send_and_wait": "use send(topic, value).result(); in asyncio: await (await send(topic, value))",
        "poll": "not needed: callbacks are called by themselves, and flush(seconds) waits for all",
        "partitions_for": "use Admin(bootstrap).partitions(topic)",
        "list_topics": "use Admin(bootstrap).topics()",
        "create_batch": "use send_columns(topic, table)",
        "send_batch": "use send_columns(topic, table)",
        "produce_batch": "use send_columns(topic, table)",
        "start": _CONNECTS_BY_ITSELF,
        "stop": "use close()",
        "bootstrap_connected": _CONNECTS_BY_ITSELF,
        "init_transactions": f"the first transaction initializes the producer; {_TRANSACTIONS}",
        "begin_transaction": _TRANSACTIONS,
        "commit_transaction": _TRANSACTIONS,
        "abort_transaction": _TRANSACTIONS,
        "send_offsets_to_transaction": _TRANSACTIONS,
    },
    "admin client": {
        "brokers": "use describe_cluster().nodes",
        "groups": "use list_groups()",
        "list_consumer_groups": "use list_groups()",
        "consumer_groups": "use list_groups()",
        "describe_groups": "use group(name), or describe_classic_groups([name, ...])",
        "delete_consumer_groups": "use delete_groups([name, ...])",
        "delete_share_groups": "use delete_groups([name, ...])",
        "delete_streams_groups": "use delete_groups([name, ...])",
        "list_streams_group_offsets": "use list_consumer_group_offsets({group: None})",
        "alter_streams_group_offsets": "use alter_consumer_group_offsets(group, offsets)",
        "delete_streams_group_offsets": "use delete_consumer_group_offsets(group, partitions)",
        "lag": "use group(name).lag",
        "consumer_lag": "use group(name).lag",
        "list_group_offsets": "use committed_offsets(group)",
        "alter_group_offsets": "use commit_offsets(group, offsets)",
        "reset_group_offsets": "use commit_offsets(group, offsets)",
        "list_partition_offsets": "use list_offsets({partition: ...})",
        "beginning_offsets": 'use list_offsets({partition: "earliest"})',
        "end_offsets": 'use list_offsets({partition: "latest"})',
        "alter_configs": "use incremental_alter_configs(changes)",
        "list_client_metrics_resources": 'use list_config_resources(["client_metrics"])',
        "api_versions": "use request(ApiVersionsRequest(...), node)",
        "get_broker_version_data": "use request(ApiVersionsRequest(...), node)",
        "delete_group_offsets": "use delete_consumer_group_offsets(group, partitions)",
        "describe_topic_partitions": "use describe_topics([topic, ...])",
        "find_coordinator": 'use coordinator("group", group)',
        "find_hanging_transactions": "use describe_producers([partition, ...]), and list_transactions()",
        "remove_group_members": "use remove_members_from_consumer_group(group, members)",
        "reset_configs": "use incremental_alter_configs(changes)",
        "wait_for_topics": "not needed: create_topics(topics) returns when every partition has a leader",
        "cluster_id": "use describe_cluster().cluster_id",
        "set_sasl_credentials": _NO_NEW_PASSWORD,
        "poll": "not needed: each call returns its result",
        "start": _CONNECTS_BY_ITSELF,
        "stop": "use close()",
    },
    "delivery": {
        "get": "use result(seconds)",
        "add_callback": "use add_done_callback(function): it gets the delivery",
        "add_errback": "use add_done_callback(function): it gets the delivery, which has exception()",
        "is_done": "use done()",
        "succeeded": "use done() and exception()",
        "failed": "use exception()",
        "value": "use result(seconds)",
        "remove_done_callback": "asyncio.wait needs futures: asyncio.ensure_future makes one from a delivery",
    },
}
# The keys of `METHODS` that are kinds of clients.
CLIENTS: Final = ("consumer", "producer", "admin client")
# Another library's argument, or method and argument -> this library's argument, or what to use instead.
ARGUMENTS: Final[Mapping[str, str]] = {
    "timeout_ms": "timeout, in seconds",
    "update_offsets": "nothing: commit() commits what poll() returned",
    "num_messages": "max_records",
    "asynchronous": "commit_async(offsets)",
    "message": "{partition: offset + 1}",
    "callback": "commit_async(offsets, callback)",
    "on_assign": _USE_LISTENER,
    "on_revoke": _USE_LISTENER,
    "on_lost": _USE_LISTENER,
    "send: callback": "send(...).add_done_callback(function)",
    "send: on_delivery": "send(...).add_done_callback(function)",
    "send: timestamp_ms": "timestamp, in milliseconds",
    "send: timeout": "send(...).result(seconds), and the option max_block_ms",
}


def unknown_argument(method: str, names: Collection[str], known: tuple[str, ...]) -> TypeError:
    """Return a TypeError like Python's for an unknown argument.

    The message names the argument to use instead, or lists the known arguments.
    """
    name = min(names)
    substitute = ARGUMENTS.get(f"{method}: {name}", ARGUMENTS.get(name))
    hint = f"use {substitute}" if substitute else f"it has {', '.join(known)}"
    return TypeError(f"{method}() got an unexpected keyword argument {name!r}; {hint}")


def unknown_method(client: object, kind: str, name: str) -> AttributeError:
    """Return an AttributeError like Python's for an attribute that does not exist.

    If the attribute is a method of another library, the error names kproto's equivalent. `kind` is a key of
    `METHODS`.
    """
    message = f"{type(client).__name__!r} object has no attribute {name!r}"
    method = re.sub("([A-Z])", lambda match: f"_{match[1].lower()}", name)
    if method in METHODS[kind]:
        return AttributeError(f"{message}; {METHODS[kind][method]}", name=name, obj=client)
    # The method may belong to another kind of client, for example if the application calls a producer's
    # method on a consumer.
    other_kind = next((client_kind for client_kind in CLIENTS if method in METHODS[client_kind]), None)
    hint = ""
    if other_kind and kind in CLIENTS:
        article = "an" if other_kind == "admin client" else "a"
        hint = f"; of {article} {other_kind}: {METHODS[other_kind][method]}"
    return AttributeError(f"{message}{hint}", name=name, obj=client)


# Advice for constructor calls with too many positional arguments. These arguments are topics in kafka-python
# and aiokafka. In sarama's groups the second argument is the group id.
_HINT_FOR_GROUPS: Final = 'the group is group_id="name", topics are for consume([topic, ...], handler)'
_HINT_FOR_OTHERS: Final = "topics are for subscribe([topic, ...]) and send(topic, value)"


def hide_secrets(init: Callable[Concatenate[Any, P], None]) -> Callable[Concatenate[Any, P], None]:
    """Make a client's `__init__` accept one positional argument, and hide passwords in its errors.

    Some tools show the variables of each frame of a traceback, and variables of `__init__` contain passwords.
    So this function re-raises errors of `__init__` without the frames of `__init__`.

    A dict of options, as librdkafka accepts it, may also contain passwords. The error shows the dict with its
    passwords hidden.
    """

    @functools.wraps(init)
    def init_without_secrets(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> None:
        if len(args) > 1 or (args and "bootstrap_servers" in kwargs):
            error_text = (
                f'{type(self).__name__}("host:9092", option=value, ...) takes the addresses, and each option '
                "by name; " + (_HINT_FOR_GROUPS if hasattr(self, "consume") else _HINT_FOR_OTHERS)
            )
            # Tools that show the variables of a traceback must find neither passwords in the arguments nor a
            # client that is not initialized, whose repr would fail.
            del self, args, kwargs
            raise TypeError(error_text)
        shown_args: Any = tuple(map(_without_secrets, args))
        del args
        for option in kwargs.keys() - {"sasl_extensions"}:
            kwargs[option] = _without_secrets(kwargs[option])
        servers: Any = shown_args[0] if shown_args else kwargs.get("bootstrap_servers")
        try:
            if isinstance(servers, Mapping):
                # `addresses` raises an error that explains how to pass options. This call precedes the check
                # for missing options, whose error would be misleading here.
                addresses(cast("Any", servers))
            init(self, *shown_args, **kwargs)
        except (KprotoError, TypeError) as error:
            for option, value in kwargs.items():
                is_hidden = option.replace(".", "_") == "bootstrap_servers" or is_secret_value(option, value)
                kwargs[option] = HIDDEN if is_hidden else value
            shown_args = servers = value = HIDDEN  # The address may be a URL that contains a password.
            if error.__suppress_context__:
                # Tracebacks do not show the context of this error, but its frames contain passwords.
                error.__context__ = None
            # The client is only partly initialized, so its repr would fail.
            del self
            raise error.with_traceback(None)  # noqa: B904

    return init_without_secrets


def _without_secrets(value: Any) -> Any:
    """Return a dict of options with its passwords hidden, so that an error may show it.

    A value that is not a mapping is returned unchanged.
    """
    if not isinstance(value, Mapping):
        return value
    options = cast("Mapping[object, object]", value)
    return {key: HIDDEN if is_secret_value(str(key), value) else value for key, value in options.items()}
