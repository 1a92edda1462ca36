// Classic and small, in the head: the chosen theme is there before the first paint.
(() => {
  try {
    const theme = localStorage.getItem("labelchef-theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch { /* no storage: the system decides */ }
})();
