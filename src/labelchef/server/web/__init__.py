"""The API and the page (extra: `labelchef[serve]`): authorise, call one function of the server, render."""
