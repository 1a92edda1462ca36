"""The ledger of a campaign in the database, and the links that show an alteration."""
