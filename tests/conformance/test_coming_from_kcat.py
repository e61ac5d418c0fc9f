"""The flags in the page about kcat are those of the installed kcat."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from tests.kcat import FLAGS

pytestmark = pytest.mark.clients


def test_the_installed_kcat_has_no_flag_that_the_page_lacks() -> None:
    """The program is optional, so its absence is no failure even if all judges are required."""
    program = shutil.which("kcat") or shutil.which("kafkacat")
    if program is None:
        pytest.skip("kcat is not installed; tests/cli/test_kcat.py checks the flags of its release 1.7.1")
    done = subprocess.run([program, "-h"], capture_output=True, text=True, timeout=30)
    listed = set(re.findall(r"(?m)(?:^  |\| )-(\w)\b", done.stdout + done.stderr))
    assert len(listed) > 25
    assert listed <= set(FLAGS)
    assert set(FLAGS) - listed <= set("rMU")
