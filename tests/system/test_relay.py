"""Progress of a child process, shown by its parent."""

import io
import os
import signal

import pytest

from ghrq.system.progress import PATIENCE_SECONDS, make_progress
from ghrq.system.relay import JsonProgress, Relay
from recorded import Record


@pytest.fixture
def child(monkeypatch):
    """The progress of a child, and the stream that it writes to."""
    monkeypatch.setenv("GHRQ_PROGRESS", "json")
    stream = io.StringIO()
    progress = make_progress(stream)
    assert isinstance(progress, JsonProgress)
    return progress, stream


def test_the_parent_shows_what_the_child_shows(child):
    progress, stream = child
    progress.note("hello")
    progress.note("training one in runs/one")
    with progress.bar("encoder", 20, done=5, unit="steps") as bar:
        for _ in range(15):
            bar.advance(text="loss 3")
    unknown = progress.bar("items", None)
    with progress.patient_bar("quick", 3) as bar:
        bar.advance(3)
    assert PATIENCE_SECONDS > 1
    stream.write("UserWarning: careful\n[1, 2]\n")
    shown = Record()
    relay = Relay("one", shown)
    for line in stream.getvalue().splitlines(keepends=True):
        relay.read(line)
    assert shown.notes == ["one: hello", "training one in runs/one"]
    assert shown.bars == {"one: encoder": (20, 20, "steps", "loss 3", True), "one: items": (0, None, "", "", False)}
    assert relay.other_lines == ["UserWarning: careful", "[1, 2]"]
    relay.close()  # the child was killed
    assert shown.bars["one: items"][-1]
    unknown.close()


def test_a_child_whose_parent_is_gone_shuts_down():
    received = []
    before = signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    reader, writer = os.pipe()
    os.close(reader)
    try:
        JsonProgress(os.fdopen(writer, "w", buffering=1, closefd=False)).note("is anybody there?")
    finally:
        signal.signal(signal.SIGTERM, before)
        os.close(writer)
    assert received == [signal.SIGTERM]
