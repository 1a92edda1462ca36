// The texts of the page in the reader's language. The English text is the key; see web/texts.py.

const language = document.documentElement.lang || "en";
/** How dates and numbers are written: as the reader's browser does it in the language of the page. */
export const locale = navigator.languages.find((one) => one.split("-")[0] === language) ?? language;
const known = language === "en" ? {} : await fetch(document.documentElement.dataset.texts).then((answer) => answer.json()).catch(() => ({}));

/** A text with its places {name} filled. */
export function t(message, values = {}) {
  return (known[message] ?? message).replace(/\{(\w+)\}/g, (place, name) => (name in values ? String(values[name]) : place));
}

const PLACE = /\{(\w+)\}/g;
let forms = null;
/** A sentence of the server: the whole text, else one with places that it fits, as in web/texts.py. */
export function told(message) {
  if (message in known) return known[message];
  forms ??= Object.entries(known)
    .filter(([key]) => key.includes("{") && key.replace(PLACE, "").length >= 10)
    .sort(([one], [other]) => other.length - one.length)
    .map(([key, text]) => [new RegExp(`^${pattern(key)}$`, "s"), text]);
  for (const [form, text] of forms) {
    const found = form.exec(message);
    if (found) return text.replace(PLACE, (place, name) => found.groups[name] ?? place);
  }
  return message;
}

function pattern(key) {
  const seen = new Set();
  return key.split(/(\{\w+\})/).map((part) => {
    const name = /^\{(\w+)\}$/.exec(part)?.[1];
    if (!name) return part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
    if (seen.has(name)) return `\\k<${name}>`;
    seen.add(name);
    return `(?<${name}>.+?)`;
  }).join("");
}

const moments = new Intl.DateTimeFormat(locale, { dateStyle: "medium", timeStyle: "short" });
const exactly = new Intl.DateTimeFormat(locale, { dateStyle: "full", timeStyle: "long" });
/** A moment in the reader's time zone. */
export const when = (moment) => moments.format(new Date(moment));
/** The same with seconds and the zone. */
export const whenExactly = (moment) => exactly.format(new Date(moment));
export const number = new Intl.NumberFormat(locale).format;

/** A text whose places are elements: its parts, in the order of the language. */
export const parts = (text, nodes) => text.split(/(\{\w+\})/).map((part) => nodes[/^\{(\w+)\}$/.exec(part)?.[1]] ?? part);
