"""The page about kcat lists every flag of the installed kcat. It may also list -r, -M and -U."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from tests.conformance.judges import missing
from tests.kcat import FLAGS

pytestmark = pytest.mark.clients


def test_the_installed_kcat_has_no_flag_that_the_page_lacks() -> None:
    program = shutil.which("kcat") or shutil.which("kafkacat") or missing("kcat")
    done = subprocess.run([program, "-h"], capture_output=True, text=True, timeout=30)
    listed = set(re.findall(r"(?m)(?:^  |\| )-(\w)\b", done.stdout + done.stderr))
    assert len(listed) > 25
    assert listed <= set(FLAGS)
    assert set(FLAGS) - listed <= set("rMU")
