"""Items to people, votes from people, and what is decided from them."""
