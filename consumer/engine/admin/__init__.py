"""Admin work as plans: generators that say what to ask, and are told the answers.

A plan yields either a list of `Ask` (all of them are sent at once; it is sent back the list of answers, in
the same order, each a message or the error that came instead) or a `Rest` (wait a while; the text says for
what). It returns its result, or raises what the caller shall see. `runner.py` runs them.

Rules that hold here:

* A plan retries what Kafka calls retriable, with growing pauses, for ever: whoever runs it holds the deadline
  and says in its error what the plan was last resting for.
* What is worth another try is said by the one table of error codes (`error_actions.py`).
* Wrong leaders and lost connections lead to fresh metadata; an unknown topic does not stay unknown
  quietly: after `PATIENCE` looks it is an `UnknownTopic` (it may have been created a moment ago).
* Offsets, epochs and timestamps that don't exist are None.
"""

from __future__ import annotations

from .cluster import Route as Route
from .cluster import find_coordinator as find_coordinator
from .cluster import know_partitions as know_partitions
from .cluster import know_topics as know_topics
from .cluster import leader_of as leader_of
from .cluster import partitions_of as partitions_of
from .cluster import read_metadata as read_metadata
from .cluster import request as request
from .groups import Group as Group
from .groups import GroupMember as GroupMember
from .groups import ListedGroup as ListedGroup
from .groups import delete_groups as delete_groups
from .groups import group as group
from .groups import groups as groups
from .offsets import commit_offsets as commit_offsets
from .offsets import committed_offsets as committed_offsets
from .plan import PATIENCE as PATIENCE
from .plan import Answers as Answers
from .plan import Ask as Ask
from .plan import Plan as Plan
from .plan import Rest as Rest
from .plan import expect as expect
from .plan import lost as lost
from .records import FetchedBytes as FetchedBytes
from .records import OffsetAt as OffsetAt
from .records import epoch_ends as epoch_ends
from .records import fetch as fetch
from .records import list_offsets as list_offsets
from .records import produce as produce
from .topics import create_partitions as create_partitions
from .topics import create_topics as create_topics
from .topics import delete_topics as delete_topics
from .topics import on_controller as on_controller
