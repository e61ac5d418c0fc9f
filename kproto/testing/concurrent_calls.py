"""Two threads in one object at once: what the one that came second is told."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..errors import KprotoError


def refusal(long: Callable[[], object], short: Callable[[], object], end: Callable[[], object]) -> str:
    """Call `short` again and again while another thread is in `long`; what one of both was refused with.

    Empty when both went through each time until `long` returned. `end` is called at last, from here; it has
    to let `long` return.
    """
    said: list[str] = []

    def stay() -> None:
        try:
            long()
        except KprotoError as error:
            said.append(str(error))

    thread = threading.Thread(target=stay, daemon=True)
    thread.start()
    found = ""
    while thread.is_alive() and not found:
        try:
            short()
        except KprotoError as error:
            found = str(error)
    heard = list(said)  # what is said from here on is about the end
    end()
    thread.join(30)
    return found or (heard[0] if heard else "")
