"""A round as pure steps, stopping rules, and the loop that runs them in memory."""
