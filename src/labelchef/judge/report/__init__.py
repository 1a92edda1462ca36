"""Plots and the HTML report (extra: `labelchef[report]`)."""

from labelchef.judge.report.page import ReportData, Thumbnail, render_report, require_report

__all__ = ["ReportData", "Thumbnail", "render_report", "require_report"]
