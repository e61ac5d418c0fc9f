"""The version of this release; its tag is `v` and the version."""

__version__ = "0.2.0"
