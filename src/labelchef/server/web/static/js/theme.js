// A classic script in the head, so that the chosen theme is set before the first paint.
(() => {
  try {
    const theme = localStorage.getItem("labelchef-theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch { /* no storage: the system decides */ }
})();
