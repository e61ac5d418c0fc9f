"""`python -m kproto` is the command `kproto`."""

from .cli import main

raise SystemExit(main())
