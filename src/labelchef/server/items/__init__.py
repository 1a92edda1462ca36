"""The items of a campaign: looked through, compared, decided."""
