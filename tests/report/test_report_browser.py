"""The pages of 'ghrq report' and 'ghrq inspect' in a real browser, with everything on them."""

import numpy as np
import pytest

from browser import check_page
from finished_runs import finished, finished_audio
from ghrq import Tokenizer
from ghrq.metrics.popularity import popularity_slices
from ghrq.metrics.prefix_words import prefix_words
from ghrq.metrics.quality import quality
from ghrq.report.ids_examples import ItemExamples
from ghrq.report.ids_more import compared_section, popularity_section, words_section
from ghrq.report.ids_page import write_page
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


@pytest.mark.slow
def test_the_page_about_ids_with_all_its_sections(tmp_path):
    random = np.random.default_rng(0)
    x = random.normal(size=(300, 4)).astype(np.float32)
    measured = {}
    for kind in ("ghrq", "euclidean"):
        tokenizer = Tokenizer(kind=kind, num_stages=3, codebook_size=8).fit(x)
        codes = tokenizer.encode(x)
        measured[kind] = quality(codes, x, tokenizer)
    titles = [" ".join(random.choice(["nail", "<b>hair</b>", "cream"], 2)) for _ in x]
    more = [
        compared_section(measured),
        words_section(prefix_words(codes, titles)),
        popularity_section(popularity_slices(codes, random.random(300)), "sold"),
    ]
    examples = ItemExamples.of(codes, 3, lambda rows: [titles[row] for row in rows], x)
    check_page(write_page(measured["ghrq"], tmp_path, examples=examples, more=more))
