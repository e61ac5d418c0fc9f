"""Run the command `kproto` as `python -m kproto`."""

from .cli import main

raise SystemExit(main())
