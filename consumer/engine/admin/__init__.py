"""Admin operations as plans: generators that yield requests and receive the responses.

A plan yields a list of `Ask`, which are sent together. It then receives the list of ended calls in the same
order, each with a response or an error. To wait for a while a plan yields a `Rest`, with the reason as its
text. A plan returns its result, or raises an error for the caller. `runner.py` runs plans.

Rules:

* A plan retries retriable errors without a limit, with growing pauses. The runner ends the plan at its
  deadline, with an error that says what the plan was last waiting for.
* The table of error codes (`error_actions.py`) says which errors are retriable.
* Wrong leaders and lost connections lead to fresh metadata. A topic that is still unknown after `PATIENCE`
  further Metadata responses raises UnknownTopic; it may have been created a moment ago.
* Unknown offsets, epochs and timestamps are None.
"""

from __future__ import annotations

from .cluster import Route as Route
from .cluster import await_partitions as await_partitions
from .cluster import await_topics as await_topics
from .cluster import find_coordinator as find_coordinator
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
from .plan import expect_response as expect_response
from .plan import may_repeat as may_repeat
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
