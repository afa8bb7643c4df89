"""Bars on a terminal, plain lines elsewhere."""

import errno
import io
import os

import pytest

from ghrq.system.progress import PlainProgress, Progress, TerminalProgress, make_progress


class Terminal(io.StringIO):
    closed_by_its_user = False

    def isatty(self):
        return True

    def write(self, text):
        if self.closed_by_its_user:
            raise OSError(errno.EIO, "Input/output error")
        return super().write(text)


def test_plain_lines_now_and_then(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("ghrq.system.progress.time.monotonic", lambda: clock[0])
    stream = io.StringIO()
    with PlainProgress(stream).bar("encoder", 1200, done=1000, unit="steps") as bar:
        for _ in range(200):
            clock[0] += 0.5
            bar.advance(text="loss 3.81")
    assert stream.getvalue().splitlines() == [  # one every 30 seconds, and the last; the rate is of what was done now
        "encoder  1,060/1,200  loss 3.81  2 steps/s  1 min 10 s left",
        "encoder  1,120/1,200  loss 3.81  2 steps/s  40 s left",
        "encoder  1,180/1,200  loss 3.81  2 steps/s  10 s left",
        "encoder  1,200/1,200  loss 3.81  2 steps/s  0 s left",
    ]


def test_plain_is_quiet_when_it_is_quick():
    stream = io.StringIO()
    progress = PlainProgress(stream)
    assert list(progress.track([1, 2, 3], label="three")) == [1, 2, 3]
    assert stream.getvalue() == ""
    progress.note("hello")
    assert stream.getvalue() == "hello\n"


def test_terminal_bars_and_notes():
    stream = Terminal()
    progress = make_progress(stream)
    assert isinstance(progress, TerminalProgress)
    with progress.bar("encoder", 20) as bar:
        for i in range(20):
            bar.advance(text=f"loss {i}")
            if i == 10:
                progress.note("half [way]")
                list(progress.track(iter("ab"), total=2, label="inside"))
    with progress.bar("second", None) as bar:
        bar.advance(3)
    shown = stream.getvalue()
    for text in ("encoder", "20/20", "loss 19", "half [way]", "inside", "2/2", "second"):
        assert text in shown
    assert "\x1b[" in shown


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # rich's thread, as it may
@pytest.mark.parametrize("kind", [PlainProgress, TerminalProgress])
@pytest.mark.parametrize("before", [False, True])
def test_a_terminal_that_is_closed_ends_no_work(before, kind):
    stream = Terminal()
    progress, done = kind(stream), []
    stream.closed_by_its_user = before
    with progress.bar("work", 3) as bar:
        stream.closed_by_its_user = True
        progress.note("nobody sees this")
        for i in range(3):
            bar.advance()
            done.append(i)
    assert done == [0, 1, 2]
    assert "nobody" not in stream.getvalue()


@pytest.mark.parametrize(("environment", "kind"), [({"RANK": "1"}, Progress), ({"TERM": "dumb"}, PlainProgress)])
def test_who_sees_what(environment, kind, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert type(make_progress(Terminal())) is kind


def test_only_plain_text_into_a_file(tmp_path, monkeypatch):
    assert "RANK" not in os.environ
    with (tmp_path / "log").open("w") as file:
        assert type(make_progress(file)) is PlainProgress
