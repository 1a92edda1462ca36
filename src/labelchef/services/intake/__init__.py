"""Files on their way to a campaign: kept (`folders`), worked on in the background (`jobs`), shown, corrected, made (`steps`)."""
