"""The artifact kafka-clients: KafkaConsumer, classic, of which `java` and `java_2_6` are two releases.

Both have one structure, so they are one machine; where they differ is in one place, `rules`. Sources, of
4.3.1 and 2.6.2: KafkaConsumer (ClassicKafkaConsumer), AbstractCoordinator, ConsumerCoordinator,
SubscriptionState, Fetcher and OffsetFetcher, FetchSessionHandler, Metadata.

* Two threads: the application's, which does everything only inside of a call (`calling`), and the heartbeat
  thread, which beats, looks the coordinator up and leaves by itself (`beating`).
* What blocks a call is a `Block` in the state; the call goes on when the event has come that it waits for.
"""
