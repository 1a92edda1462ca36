"""The sources of a campaign: what is known of them, their rules, and what a change of them would do."""
