"""Files in and out: campaigns, labels, votes, the report."""
