"""Campaigns: made, looked at, steered and moved on; their settings, guidelines and figures."""
