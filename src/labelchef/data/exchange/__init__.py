"""Files of other tools: each converter reads them into records and writes records as such files. No database."""
