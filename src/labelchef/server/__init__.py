"""People at a page: use cases by noun, the page and the API, the database (extra: `labelchef[serve]`)."""
