"""A KDC of MIT Kerberos for tests, with the principals alice and kafka/localhost."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REALM = "EXAMPLE.COM"
# The reason to skip tests on a computer without a KDC, or "" if a KDC is installed.
MISSING = "" if shutil.which("krb5kdc") else "no KDC: the packages krb5-kdc and krb5-admin-server"


def database_modules() -> Path:
    """Return the folder of the KDC's database modules, which depends on the system."""
    kdc = Path(shutil.which("krb5kdc") or "").resolve()
    return next(kdc.parents[1].glob("lib/**/krb5/plugins/kdb"))


@contextmanager
def running_kdc(folder: Path) -> Iterator[None]:
    """Run a KDC, and create two keytabs in a folder: `alice`, and `kafka` for the service kafka/localhost."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "krb5.conf").write_text(
        f"[libdefaults]\ndefault_realm = {REALM}\ndns_lookup_kdc = false\ndns_canonicalize_hostname = false\n"
        f"rdns = false\n[realms]\n{REALM} = {{\nkdc = 127.0.0.1:{port}\n}}\n"
    )
    (folder / "kdc.conf").write_text(
        f"[kdcdefaults]\nkdc_listen = 127.0.0.1:{port}\nkdc_tcp_listen = 127.0.0.1:{port}\n"
        f"[realms]\n{REALM} = {{\ndatabase_name = {folder}/db\nkey_stash_file = {folder}/stash\n"
        f"acl_file = {folder}/acl\n}}\n[dbmodules]\ndb_module_dir = {database_modules()}\n"
    )
    names = {
        "KRB5_CONFIG": str(folder / "krb5.conf"),
        "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
        "KRB5CCNAME": f"FILE:{folder}/tickets",
        "KRB5_KTNAME": str(folder / "kafka"),
    }
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    try:
        subprocess.run(
            ["kdb5_util", "create", "-s", "-r", REALM, "-P", "master"], check=True, capture_output=True
        )
        for principal, keytab in (("alice", "alice"), ("kafka/localhost", "kafka")):
            for command in (f"addprinc -randkey {principal}", f"ktadd -k {folder / keytab} {principal}"):
                subprocess.run(["kadmin.local", "-q", command], check=True, capture_output=True)
        with subprocess.Popen(["krb5kdc", "-n"]) as kdc:
            while True:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.02)
            try:
                yield
            finally:
                kdc.terminate()
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
