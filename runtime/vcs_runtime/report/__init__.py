"""Reports: an HTML file about one pair or many, or a PDF of one pair (docs/guide/reports.md)."""

from vcs_runtime.report.html import HtmlReport
from vcs_runtime.report.pdf import write_pdf
from vcs_runtime.report.systems import Systems

__all__ = ["HtmlReport", "Systems", "write_pdf"]
