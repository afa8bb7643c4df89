"""A progress that records what it was asked to show."""

from ghrq.system.progress import Progress


class Record(Progress):
    """All notes, and the last state of each bar: done, total, unit, text, and whether it is closed."""

    delay = interval = 0.0

    def __init__(self):
        self.notes, self.bars = [], {}

    def note(self, text):
        self.notes.append(text)

    def show(self, bar, last):
        self.bars[bar.label] = (bar.done, bar.total, bar.unit, bar.text, last)
