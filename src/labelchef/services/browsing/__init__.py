"""Look through all items of a campaign: filters, search, similar items, and actions on many at once."""
