"""From files to the data of a campaign and back: read, detect, join, check, encode; the formats of other tools."""
