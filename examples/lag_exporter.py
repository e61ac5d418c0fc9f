"""Print the lag of all groups in the text format of Prometheus, as a lag exporter does."""

from __future__ import annotations

from collections.abc import Iterator

from embedded import broker

from kproto import Admin, Producer

RECORDS = 10


def lines(admin: Admin) -> Iterator[str]:
    """Yield the samples of all partitions of all groups. A service would return them for `GET /metrics`."""
    yield "# TYPE kafka_consumergroup_lag gauge"
    for name in sorted(admin.list_groups()):
        for partition, lag in sorted(admin.group(name).lag.items()):
            labels = f'group="{name}",topic="{partition.topic}",partition="{partition.partition}"'
            yield f"kafka_consumergroup_lag{{{labels}}} {lag}"


def main() -> None:
    with broker(__doc__ or "", {"measured": 2}) as bootstrap, Admin(bootstrap) as admin:
        with Producer(bootstrap) as producer:
            for number in range(RECORDS):
                producer.send("measured", b"%d" % number, partition=number % 2)

        # A group that has read everything except the last three records of partition 0.
        ends = admin.list_offsets(dict.fromkeys(admin.partitions("measured"), "latest"))
        offsets = {partition: end.offset or 0 for partition, end in ends.items()}
        admin.commit_offsets("slow", {p: end - (3 if p.partition == 0 else 0) for p, end in offsets.items()})

        samples = list(lines(admin))
        print("\n".join(samples))
        assert 'kafka_consumergroup_lag{group="slow",topic="measured",partition="0"} 3' in samples
        assert 'kafka_consumergroup_lag{group="slow",topic="measured",partition="1"} 0' in samples


if __name__ == "__main__":
    main()
