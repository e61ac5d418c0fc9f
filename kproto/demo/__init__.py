"""The demo: send a year of flights through a broker, a consumer group and Spark, and check all records.

    flights.py   the data set, as records and as the expected totals that pandas computes
    member.py    a member of the consumer group, in a process of its own
    script.py    the sequence of events: produce, join, kill, grow
    spark.py     departures and delays per origin and hour, as a Structured Streaming query
    checks.py    what the group read, and the checks of all results

`kproto demo` runs it.
"""
