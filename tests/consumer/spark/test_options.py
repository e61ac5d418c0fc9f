"""The options of format("kproto") are parsed, or rejected with an error that lists the allowed values."""

from __future__ import annotations

import pickle
import re

import pytest

from consumer.spark.options import Options, parse
from consumer.spark.selection import (
    Assigned,
    GlobalTimestamp,
    LogEdge,
    Pattern,
    SpecificOffsets,
    SpecificTimestamps,
    Topics,
)
from consumer.spark.values import ColumnFormat, module_of
from kproto.errors import ConfigError
from kproto.group.subscription import TopicPartition

F0, F1 = TopicPartition("flights", 0), TopicPartition("flights", 1)


def options(**more: str) -> Options:
    """Parse options with a bootstrap server and one topic. `_` in a name stands for a dot."""
    required = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "flights"}
    return parse({**required, **{name.replace("_", "."): value for name, value in more.items()}})


def error_of(**more: str) -> str:
    """Return the error that these options raise."""
    with pytest.raises(ConfigError) as e:
        options(**more)
    return str(e.value)


def test_names_are_compared_without_case() -> None:
    texts = {"KAFKA.Bootstrap.Servers": "a:1", "SUBSCRIBE": "flights", "maxoffsetspertrigger": "5"}
    assert parse(texts).max_offsets_per_trigger == 5


def test_options_can_be_pickled() -> None:
    sent = options(startingOffsets='{"flights": {"0": 5, "1": -2}}', kafka_isolation_level="read_committed")
    assert pickle.loads(pickle.dumps(sent)) == sent


@pytest.mark.parametrize("servers", ["a:b", "a:1:2", "SSL://a:1", "ftp://a:1"])
def test_invalid_servers_are_rejected_under_the_options_own_name(servers: str) -> None:
    with pytest.raises(ConfigError, match=r"^kafka\.bootstrap\.servers='"):
        parse({"kafka.bootstrap.servers": servers, "subscribe": "t"})


def test_servers_may_repeat_the_security_protocol() -> None:
    texts = {"kafka.bootstrap.servers": "SSL://a:1", "kafka.security.protocol": "ssl", "subscribe": "t"}
    assert parse(texts).bootstrap_servers == "SSL://a:1"


def test_empty_options_that_java_accepts_are_accepted() -> None:
    empty = options(kafka_client_id="", kafka_client_rack=" ")
    assert empty.text("client.id", "ours") == "ours"
    nothing = options(kafka_metadata_max_age_ms="0", kafka_retry_backoff_ms="0", kafka_batch_size="0")
    assert set(nothing.client.values()) == {1}


def test_missing_bootstrap_servers_raise_with_their_form() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers.*HOST:PORT"):
        parse({"subscribe": "flights"})


def test_a_misspelt_option_is_rejected_with_the_most_similar_name() -> None:
    assert error_of(maxOffsetPerTrigger="5") == (
        "maxOffsetPerTrigger='5' is not allowed; the option does not exist; "
        "did you mean maxOffsetsPerTrigger?"
    )


def test_an_unknown_option_is_rejected_with_all_names() -> None:
    text = error_of(zzz="5")
    assert "the option does not exist" in text
    assert "includeHeaders" in text


def test_options_added_by_spark_are_accepted() -> None:
    assert options(checkpointLocation="/somewhere", path="x", queryName="q").choice == Topics(("flights",))


# ---- topics


def test_blanks_around_the_commas_of_subscribe_are_trimmed() -> None:
    assert options(subscribe=" flights , delays,").choice == Topics(("flights", "delays"))


@pytest.mark.parametrize("empty", ["", " ", ",", " , "])
def test_an_empty_subscribe_is_rejected(empty: str) -> None:
    assert "at least one topic" in error_of(subscribe=empty)


def test_an_invalid_pattern_is_rejected() -> None:
    texts = {"kafka.bootstrap.servers": "a:1", "subscribePattern": "flights("}
    with pytest.raises(ConfigError, match=r"subscribePattern.*regular expression"):
        parse(texts)


def test_blanks_around_a_pattern_are_trimmed() -> None:
    texts = {"kafka.bootstrap.servers": "localhost:9092", "subscribePattern": " f.* "}
    assert parse(texts).choice == Pattern("f.*")


def test_a_pattern_is_not_changed() -> None:
    assert parse({"kafka.bootstrap.servers": "a:1", "subscribePattern": "fl.*"}).choice == Pattern("fl.*")


def test_assigned_partitions_are_sorted() -> None:
    texts = {"kafka.bootstrap.servers": "a:1", "assign": '{"flights": [1, 0]}'}
    assert parse(texts).choice == Assigned((F0, F1))


@pytest.mark.parametrize(
    "wrong", ["flights", "[]", "{}", '{"flights": 0}', '{"flights": [-1]}', '{"flights": [true]}']
)
def test_an_assign_of_another_form_is_rejected(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r'assign=.*\{"flights": \[0, 1\]\}'):
        parse({"kafka.bootstrap.servers": "a:1", "assign": wrong})


def test_only_one_way_to_choose_topics_is_allowed() -> None:
    assert "only one of subscribe and subscribePattern" in error_of(subscribePattern="fl.*")


def test_reading_without_any_topic_is_rejected() -> None:
    with pytest.raises(ConfigError, match="one of subscribe, subscribePattern and assign"):
        parse({"kafka.bootstrap.servers": "a:1"}).for_batch()


# ---- bounds


def test_without_a_starting_option_the_start_is_none() -> None:
    assert options().starting is None


@pytest.mark.parametrize("edge", ["earliest", "latest", "LATEST"])
def test_an_edge_applies_to_all_partitions(edge: str) -> None:
    assert options(startingOffsets=edge).starting == LogEdge(edge.lower())  # type: ignore[arg-type]


def test_minus_two_is_earliest_and_minus_one_latest() -> None:
    read = options(startingOffsets='{"flights": {"0": -2, "1": -1}}').starting
    assert read == SpecificOffsets({F0: "earliest", F1: "latest"})


def test_an_edge_may_be_given_per_topic() -> None:
    read = options(startingOffsets='{"flights": {"0": 5}, "delays": "Earliest", "gates": "latest"}').starting
    assert read == SpecificOffsets({F0: 5}, {"delays": "earliest", "gates": "latest"})


@pytest.mark.parametrize(
    "copied",
    [
        '{"@flights id=c0ffee began=0:1": {}, "flights": {"0": 5}}',
        '{"@began": {"flights": {"0": 1}}, "@ids": {"flights": "c0ffee"}, "flights": {"0": 5}}',
    ],
)
def test_offsets_copied_from_a_querys_progress_are_read_without_their_topic_ids(copied: str) -> None:
    assert options(startingOffsets=copied).starting == SpecificOffsets({F0: 5})


@pytest.mark.parametrize(
    "wrong",
    [
        "newest", "5", '"5"', '{"flights": 5}', '{"flights": {"0": "5"}}', '{"flights": {"0": -3}}',
        '{"flights": {"x": 5}}', '{"flights": {"0": 5.0}}', '{"flights": {"0": true}}',
        '{"flights": "newest"}', '{"flights": "-1"}',
        '{"flights": {"²": 5}}', '{"flights": {"0": 5, "0": 6}}', '{"flights": {"0": 5, "00": 6}}', "{",
    ],
)  # fmt: skip
def test_offsets_of_another_form_are_rejected_with_an_example(wrong: str) -> None:
    text = error_of(startingOffsets=wrong)
    assert text.startswith("startingOffsets=")
    assert '{"flights": {"0": 23, "1": -2}, "delays": "earliest"}' in text


def test_a_misspelt_edge_raises_with_both_edges_instead_of_a_json_error() -> None:
    text = error_of(startingOffsets="eariest")
    assert "allowed: earliest, latest, or JSON" in text
    assert "Expecting value" not in text


def test_a_global_timestamp_precedes_timestamps_and_those_precede_offsets() -> None:
    times = '{"flights": {"0": 70}}'
    by_partition = options(startingOffsetsByTimestamp=times, startingOffsets="latest")
    assert by_partition.starting == SpecificTimestamps({F0: 70})
    assert options(startingTimestamp="60", startingOffsetsByTimestamp=times).starting == GlobalTimestamp(60)


def test_a_bound_that_does_not_apply_is_still_checked() -> None:
    assert error_of(startingTimestamp="60", startingOffsets="newest").startswith("startingOffsets='newest'")


def test_timestamps_do_not_accept_an_edge() -> None:
    text = error_of(startingOffsetsByTimestamp='{"flights": "earliest"}')
    assert text.startswith("startingOffsetsByTimestamp=")


def test_an_invalid_timestamp_is_rejected() -> None:
    assert "startingTimestamp='-1'" in error_of(startingTimestamp="-1")
    assert "milliseconds since 1970" in error_of(endingTimestamp="2026-11-23")
    assert "startingOffsetsByTimestamp='-5'" in error_of(startingOffsetsByTimestamp='{"flights": {"0": -5}}')


def test_endings_are_read_like_starts() -> None:
    assert options(endingOffsets='{"flights": {"0": -1}}').ending == SpecificOffsets({F0: "latest"})
    assert options(endingTimestamp="60").ending == GlobalTimestamp(60)


# ---- batches, streams and sinks


@pytest.mark.parametrize("offsets", ['{"flights": {"0": -1}}', '{"flights": "latest"}', "latest"])
def test_a_batch_cannot_start_at_latest(offsets: str) -> None:
    with pytest.raises(ConfigError, match="startingOffsets"):
        options(startingOffsets=offsets).for_batch()


@pytest.mark.parametrize("offsets", ['{"flights": {"0": -2}}', '{"flights": "earliest"}', "earliest"])
def test_a_batch_cannot_end_at_earliest(offsets: str) -> None:
    with pytest.raises(ConfigError, match="endingOffsets"):
        options(endingOffsets=offsets).for_batch()


@pytest.mark.parametrize(
    ("start", "end", "message"),
    [
        (
            ("startingOffsetsByTimestamp", '{"t": {"0": 9}}'),
            ("endingOffsetsByTimestamp", '{"t": {"0": %d}}'),
            "startingOffsetsByTimestamp='t-0: 9'.*must not be after the end, 8",
        ),
        (
            ("startingOffsets", '{"t": {"0": 9}}'),
            ("endingOffsets", '{"t": {"0": %d}}'),
            "startingOffsets='t-0: 9'.*must not be after the end, 8",
        ),
        (
            ("startingTimestamp", "9"),
            ("endingTimestamp", "%d"),
            "startingTimestamp=9.*must not be after endingTimestamp, 8",
        ),
    ],
)
def test_a_batch_that_ends_before_it_starts_is_rejected(
    start: tuple[str, str], end: tuple[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        options(**dict([start, (end[0], end[1] % 8)])).for_batch()
    options(**dict([start, (end[0], end[1] % 9)])).for_batch()


def test_a_stream_may_start_at_either_edge() -> None:
    assert options(startingOffsets='{"flights": {"0": -1}}').for_stream().starting == SpecificOffsets(
        {F0: "latest"}
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("endingOffsets", "latest"),
        ("endingTimestamp", "5"),
        ("endingOffsetsByTimestamp", '{"flights": {"0": 5}}'),
    ],
)
def test_a_stream_has_no_end(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}=.*a stream has no end"):
        options(**{name: value}).for_stream()


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"])
def test_a_batch_ignores_a_streams_limits_with_a_warning_as_sparks_own_source_does(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    options(**{name: "5"}).for_batch()
    assert f"{name} is ignored: it is for streams" in caplog.text


def test_a_batch_rejects_commit_group_id() -> None:
    with pytest.raises(ConfigError, match=r"commitGroupId=.*streams"):
        options(commitGroupId="g").for_batch()


def test_min_offsets_above_max_offsets_are_rejected() -> None:
    with pytest.raises(
        ConfigError,
        match="minOffsetsPerTrigger=6 is not allowed; it must be at most maxOffsetsPerTrigger, which is 5",
    ):
        options(minOffsetsPerTrigger="6", maxOffsetsPerTrigger="5").for_stream()


def test_a_sink_ignores_reading_options_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    options(startingOffsets="latest").for_sink()
    assert caplog.messages == [
        f"{name} is ignored: it is for reading, and this writes" for name in ("startingOffsets", "subscribe")
    ]


@pytest.mark.parametrize("ours", [{"commitGroupId": "lag"}, {"value.format": "string"}])
def test_a_sink_rejects_reading_options_that_spark_does_not_have(ours: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"it is for reading, not for writing; remove it"):
        options(**ours).for_sink()


def test_a_source_ignores_the_sinks_topic_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    options(topic="flights").for_batch()
    assert caplog.messages == ["topic is ignored: it is for writing, and this reads"]


def test_a_source_with_the_sinks_topic_raises_with_the_options_to_use() -> None:
    with pytest.raises(ConfigError, match=r"topic=.*set subscribe to the topics to read"):
        parse({"kafka.bootstrap.servers": "localhost:9092", "topic": "flights"}).for_batch()


@pytest.mark.parametrize("name", ["asyncProgressTrackingEnabled", "_asyncProgressTracking"])
def test_progress_tracking_options_are_accepted_and_have_no_effect(name: str) -> None:
    texts = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t", name: "true"}
    assert parse(texts).names == {"subscribe"}


def test_a_table_is_rejected_on_creation_and_on_read() -> None:
    """A table with the provider kproto is rejected when Spark creates it, and when Spark reads it.

    When Spark creates a table, it passes only the option `provider`. When it reads the table, it passes no
    option.
    """
    assert "CREATE TEMPORARY VIEW" in error_of(provider="kproto")
    with pytest.raises(
        ConfigError, match=r"no options were passed\. Spark does not keep the options of a table"
    ):
        parse({})


# ---- values


@pytest.mark.parametrize(
    ("name", "wrong", "allowed"),
    [
        ("maxOffsetsPerTrigger", "0", "of at least 1"),
        ("minOffsetsPerTrigger", "many", "of at least 1"),
        ("minPartitions", "0", "from 1 to 2147483647"),
        ("maxRecordsPerPartition", "-1", "of at least 1"),
        ("failOnDataLoss", "yes", '"true" or "false"'),
        ("includeHeaders", "1", '"true" or "false"'),
        ("maxTriggerDelay", "soon", "30s, 15m"),
        ("startingOffsetsByTimestampStrategy", "earliest", "error, latest"),
        ("kafkaConsumer.pollTimeoutMs", "0", "of at least 1"),
        ("fetchOffset.numRetries", "-1", "from 0"),
        ("commitGroupId", " ", "not blank"),
        ("kafka.isolation.level", "serializable", "read_uncommitted, read_committed"),
        ("kafka.fetch.max.bytes", "1.5", "from 1 to 2147483647"),
        ("kafka.security.protocol", "TLS", "PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("kafka.compression.type", "rar", "none, gzip, snappy, lz4, zstd"),
        ("kafka.acks", "2", '"all", "1" or "0"'),
    ],
)
def test_a_wrong_value_raises_with_what_is_allowed(name: str, wrong: str, allowed: str) -> None:
    text = error_of(**{name.replace(".", "_"): wrong})
    assert text.startswith(f"{name}={wrong!r} is not allowed; ")
    assert allowed in text


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("500ms", 500),
        ("30s", 30_000),
        ("15m", 900_000),
        ("2 h", 7_200_000),
        ("1d", 86_400_000),
        ("77", 77),
        ("2500us", 2),
    ],
)
def test_a_delay_has_sparks_form_of_durations(text: str, ms: int) -> None:
    assert options(maxTriggerDelay=text).max_trigger_delay_ms == ms


def test_the_defaults_equal_those_of_sparks_own_source() -> None:
    parsed = options()
    assert parsed.fail_on_data_loss is True
    assert parsed.include_headers is False
    assert parsed.max_offsets_per_trigger is None
    assert parsed.max_trigger_delay_ms == 15 * 60_000
    assert parsed.starting_without_match == "error"
    assert parsed.commit_group_id is None


# ---- kafka.*


@pytest.mark.parametrize(
    "name",
    [
        "kafka.auto.offset.reset", "kafka.enable.auto.commit", "kafka.key.deserializer",
        "kafka.value.deserializer", "kafka.key.serializer", "kafka.value.serializer",
        "kafka.interceptor.classes",
    ],
)  # fmt: skip
def test_options_that_would_change_a_read_are_rejected(name: str) -> None:
    assert error_of(**{name.replace(".", "_"): "x"}).startswith(f"{name}='x' is not allowed; ")


@pytest.mark.parametrize("name", ["partitioner", "interceptors", "enable.partition.eof"])
def test_client_options_that_a_query_cannot_use_are_rejected_with_the_reason(name: str) -> None:
    text = error_of(**{f"kafka_{name.replace('.', '_')}": "x"})
    assert text.startswith(f"kafka.{name}='x' is not allowed; a query ")


def test_a_misspelt_client_option_is_rejected_with_the_most_similar_name() -> None:
    assert "did you mean kafka.isolation.level?" in error_of(kafka_isolation_levels="read_committed")
    for name in ("kafka.bootstrap.server", "bootstrap.server", "bootstrap_server"):
        with pytest.raises(ConfigError, match=re.escape("did you mean kafka.bootstrap.servers?")):
            parse({name: "a:1", "subscribe": "t"})


def test_a_group_id_is_accepted_and_has_no_effect() -> None:
    assert options(kafka_group_id="g", groupIdPrefix="p") == options(groupIdPrefix="p")


def test_client_options_are_read_to_their_types() -> None:
    client = options(kafka_fetch_max_bytes="1000", kafka_check_crcs="false", kafka_acks="-1").client
    assert client == {"fetch.max.bytes": 1000, "check.crcs": False, "acks": "all"}


# ---- options of other formats and clients


@pytest.mark.parametrize("name", ["bootstrap.servers", "group.id", "max.request.size"])
def test_a_kafka_option_without_its_prefix_raises_with_the_prefixed_name(name: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"did you mean kafka.{name}?")):
        parse({name: "a:1", "subscribe": "t"})


@pytest.mark.parametrize("name", ["sasl_plain_username", "security.protocol"])
def test_security_options_of_other_clients_raise_with_javas_names(name: str) -> None:
    with pytest.raises(ConfigError, match=r"kafka\.sasl\.jaas\.config"):
        parse({"subscribe": "t", name: "x"})


def test_the_option_mode_is_rejected_with_value_on_error() -> None:
    assert "value.onError" in error_of(mode="PERMISSIVE")


def test_contradicting_limits_are_rejected_when_loading() -> None:
    with pytest.raises(ConfigError, match="minOffsetsPerTrigger"):
        options(minOffsetsPerTrigger="9", maxOffsetsPerTrigger="3").for_reading()


@pytest.mark.parametrize(
    ("name", "message"), [("topic", "it is for writing"), ("path", r"load\(\) takes no name")]
)
def test_other_ways_to_name_a_topic_raise_with_the_right_option(name: str, message: str) -> None:
    parsed = parse({"kafka.bootstrap.servers": "a:1", name: "flights"})
    with pytest.raises(ConfigError, match=message):
        parsed.for_batch()


@pytest.mark.parametrize(
    "ddl", ["id BIGINTEGER", "id", "id BIGINT,", "id: BIGINT, name: TEXT", "a MAP<STRING, INT>, b"]
)
def test_an_invalid_ddl_schema_raises_with_its_column(ddl: str) -> None:
    pytest.importorskip("pyspark")
    column_format = ColumnFormat("value", "json", schema=ddl)
    with pytest.raises(ConfigError, match=r"value\.schema=.* is not a column's name and type"):
        module_of(column_format).column_type(column_format)


@pytest.mark.parametrize(
    "ddl",
    [
        "id BIGINT, name STRING",
        "`a b`: int NOT NULL, c DECIMAL(10, 2)",
        "m MAP<STRING, STRUCT<x: INT, y: ARRAY<DATE>>>, t TIMESTAMP_NTZ",
        "a INT COMMENT 'x, y'",
    ],
)
def test_a_valid_ddl_schema_is_passed_on_unchanged(ddl: str) -> None:
    pytest.importorskip("pyspark")
    column_format = ColumnFormat("value", "json", schema=ddl)
    assert module_of(column_format).column_type(column_format) == f"STRUCT<{ddl}>"


SERVERS = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}


@pytest.mark.parametrize(
    "bounds",
    [
        {"startingTimestamp": "9", "endingOffsetsByTimestamp": '{"t": {"0": 8}}'},
        {"startingOffsetsByTimestamp": '{"t": {"0": 9}}', "endingTimestamp": "8"},
        {"startingOffsetsByTimestamp": '{"t": {"0": 9}}', "endingOffsets": '{"t": {"0": 8}}'},
        {"startingOffsets": '{"t": {"0": 9}}', "endingOffsetsByTimestamp": '{"t": {"0": 8}}'},
        {"startingOffsets": '{"t": {"0": 9}}', "endingOffsets": "latest"},
        {"startingOffsets": '{"t": {"0": 9, "1": -2}}', "endingOffsets": '{"t": {"0": -1, "1": 3}}'},
        {"startingTimestamp": "9", "endingTimestamp": "9"},
    ],
)
def test_bounds_whose_order_only_the_brokers_know_are_accepted(bounds: dict[str, str]) -> None:
    parse({**SERVERS, **bounds}).for_batch()


def test_a_transaction_timeout_needs_a_prefix_of_transactional_ids() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.transaction\.timeout\.ms=.*transactionalIdPrefix"):
        options(kafka_transaction_timeout_ms="5000").for_sink()
    options(kafka_transaction_timeout_ms="5000", transactionalIdPrefix="p").for_sink()


@pytest.mark.parametrize(("text", "acks"), [("all", "all"), ("-1", "all"), (" 1 ", "1"), ("0", "0")])
def test_acks_are_those_of_java(text: str, acks: str) -> None:
    assert options(kafka_acks=text).client["acks"] == acks


def test_other_acks_are_rejected() -> None:
    assert 'allowed: "all", "1" or "0"' in error_of(kafka_acks="2")


@pytest.mark.parametrize(("text", "number"), [("0", 1), ("1", 1), ("7", 7)])
def test_a_backoff_of_0_is_1_ms(text: str, number: int) -> None:
    parsed = options(kafka_retry_backoff_ms=text)
    assert parsed.number("retry.backoff.ms", 9) == number
    assert parsed.number("reconnect.backoff.ms", 9) == 9


def test_an_empty_client_id_selects_the_default_and_another_is_kept() -> None:
    assert options(kafka_client_id=" ").text("client.id", "default") == "default"
    assert options(kafka_client_id="mine").text("client.id", "default") == "mine"


def test_an_unknown_option_that_resembles_no_other_lists_the_allowed_ones() -> None:
    assert "allowed: assign, " in error_of(zzzzzzzz="1")
