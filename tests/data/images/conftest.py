"""Image sets without those of this machine, a web server for downloads, and the real data where it is there."""

import functools
import http.server
import os
import threading
from pathlib import Path

import pytest

REAL = os.environ.get("GHRQ_DATA", "")


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    """No data in the environment, an empty cache."""
    monkeypatch.delenv("GHRQ_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def serve(tmp_path):
    """A web server of ``tmp_path/web``; its address."""
    pytest.importorskip("pooch")
    pytest.importorskip("requests")
    (tmp_path / "web").mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=tmp_path / "web"))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def real():
    """The folder of the real data, if it has a certain file."""

    def folder(*parts):
        if not REAL or not Path(REAL, *parts).is_file():
            pytest.skip(f"no {'/'.join(parts)} in the folder that GHRQ_DATA names")
        return REAL

    return folder
