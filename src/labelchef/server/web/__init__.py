"""The API and the page (extra: `labelchef[serve]`): authorise, call one service function, render."""
