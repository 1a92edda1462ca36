// The texts of the page, and how it writes times and numbers.

/** The text with its places {name} filled; scripts mark each of their texts with it, so that they can be collected. */
export const t = (message, values = {}) => message.replace(/\{(\w+)\}/g, (place, name) => (name in values ? String(values[name]) : place));

const locale = navigator.languages.find((one) => one.split("-")[0] === "en") ?? "en";
const moments = new Intl.DateTimeFormat(locale, { dateStyle: "medium", timeStyle: "short" });
const exactly = new Intl.DateTimeFormat(locale, { dateStyle: "full", timeStyle: "long" });
/** A moment in the reader's time zone. */
export const when = (moment) => moments.format(new Date(moment));
/** The same with seconds and the zone. */
export const whenExactly = (moment) => exactly.format(new Date(moment));
export const number = new Intl.NumberFormat(locale).format;

/** A text whose places are elements: its parts. */
export const parts = (text, nodes) => text.split(/(\{\w+\})/).map((part) => nodes[/^\{(\w+)\}$/.exec(part)?.[1]] ?? part);
