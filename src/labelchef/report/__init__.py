"""Plots and the HTML report (extra: `labelchef[report]`)."""

from labelchef.report.page import ReportData, render_report, require_report

__all__ = ["ReportData", "render_report", "require_report"]
