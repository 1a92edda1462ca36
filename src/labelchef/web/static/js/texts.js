// The texts of the page in the reader's language. The English text is the key; see web/texts.py.

const language = document.documentElement.lang || "en";
const known = language === "en" ? {} : await fetch(document.documentElement.dataset.texts).then((answer) => answer.json()).catch(() => ({}));

/** A text with its places {name} filled. */
export function t(message, values = {}) {
  return (known[message] ?? message).replace(/\{(\w+)\}/g, (place, name) => (name in values ? String(values[name]) : place));
}
