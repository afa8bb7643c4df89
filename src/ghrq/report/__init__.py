"""Reports: a task declares its tables, and console text, Markdown and one self-contained HTML page are made of them."""

from ghrq.report.grid import Column
from ghrq.report.tables import Baseline, Table

__all__ = ["Baseline", "Column", "Table"]
