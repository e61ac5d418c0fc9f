"""The main job on real data: a year of flights through broker, group and Spark, and none is missing.

    flights.py   the data set, as records and as the truth that pandas computes
    member.py    one member of the consumer group, in a process of its own
    story.py     what happens when: produce, join, kill, grow
    spark.py     departures and delays per origin and hour, as a Structured Streaming query
    books.py     what the group read, and the judgement of all that came out

`kproto demo` runs it.
"""
