"""From the files people have to the data of a campaign: roles are detected, rows are joined by id, content is encoded."""
