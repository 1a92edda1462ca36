// The texts of the page in the reader's language. The English text is the key; see web/texts.py.

const language = document.documentElement.lang || "en";
/** How dates and numbers are written: as the reader's browser does it in the language of the page. */
export const locale = navigator.languages.find((one) => one.split("-")[0] === language) ?? language;
const known = language === "en" ? {} : await fetch(document.documentElement.dataset.texts).then((answer) => answer.json()).catch(() => ({}));

/** A text with its places {name} filled. */
export function t(message, values = {}) {
  return (known[message] ?? message).replace(/\{(\w+)\}/g, (place, name) => (name in values ? String(values[name]) : place));
}

const moments = new Intl.DateTimeFormat(locale, { dateStyle: "medium", timeStyle: "short" });
const exactly = new Intl.DateTimeFormat(locale, { dateStyle: "full", timeStyle: "long" });
/** A moment in the reader's time zone. */
export const when = (moment) => moments.format(new Date(moment));
/** The same with seconds and the zone. */
export const whenExactly = (moment) => exactly.format(new Date(moment));
export const number = new Intl.NumberFormat(locale).format;
