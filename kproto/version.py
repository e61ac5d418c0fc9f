"""The version of this release. The tag of the release is `v` followed by the version."""

__version__ = "0.3.3"
