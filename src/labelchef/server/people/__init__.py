"""The people of a workspace: accounts, members, and how well they label."""
