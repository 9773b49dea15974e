"""Refuses, in the first second and with a sentence, a machine that the set-up cannot work on."""

import platform
import sys

if (sys.platform, platform.machine()) != ("linux", "x86_64"):
    sys.exit(f"kvtransfer's set-up needs Linux on x86-64; this is {sys.platform} on {platform.machine()}.")
if sys.version_info < (3, 11):
    found = ".".join(map(str, sys.version_info[:3]))
    sys.exit(f"kvtransfer needs Python 3.11 or newer; {sys.executable} is {found}. Say `make PYTHON=python3.12 ...`.")
try:
    import venv as _  # noqa: F401
except ImportError:
    sys.exit("kvtransfer's set-up needs Python's venv module; on Debian and Ubuntu it is the package python3-venv.")
print("Setting up .venv: about 2.5 GB to download and 6 GB on disk, most of it torch. This happens once.", flush=True)
