"""The page of 'ghrq report' in a real browser, with the runs of two tasks on it."""

import pytest

from browser import check_page
from finished_runs import finished, finished_audio
from ghrq.report.runs import RunsReport
from ghrq.training.gather import gather


@pytest.mark.slow
def test_the_report_of_two_tasks(tmp_path):
    for kind in ("ghrq", "euclidean", "naive"):
        finished(tmp_path / "runs" / f"a-{kind} <b>", kind=kind)
        finished_audio(tmp_path / "runs" / f"audio-{kind}", kind=kind)
    page = tmp_path / "report.html"
    page.write_text(RunsReport.of(gather([tmp_path / "runs"])).write("html"), "utf-8")
    check_page(page)
