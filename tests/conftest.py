"""What holds for every test: no network, no cache of this machine, no more threads than needed."""

from __future__ import annotations

import os
import tempfile

# Before anything imports the hub's library or torch: both read these once.
os.environ["HF_HOME"] = tempfile.mkdtemp(prefix="fishtts-tests-")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.pop("HF_ENDPOINT", None)
# Voices and caches of the person who runs the tests are neither met nor changed.
os.environ["FISHTTS_VOICES"] = tempfile.mkdtemp(prefix="fishtts-tests-")
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="fishtts-tests-")
os.environ.setdefault("OMP_NUM_THREADS", "1")
