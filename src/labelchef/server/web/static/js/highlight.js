// Words of a text that rules matched, marked. Offsets are in UTF-16 units, as JavaScript counts.
import { el } from "./dom.js";
import { t } from "./texts.js";

const COLOURS = 6;
const colour = (label, classes) => `lit lit-${Math.max(classes.indexOf(label), 0) % COLOURS}`;

/** The text as nodes, with a mark for every part that spans cover; where spans overlap, a part is told with all of them. */
export function marked(text, spans, classes = []) {
  const inside = spans.filter(({ start, end }) => start < end && start >= 0 && end <= text.length);
  const ends = [...new Set([0, text.length, ...inside.flatMap(({ start, end }) => [start, end])])].sort((a, b) => a - b);
  return ends.slice(0, -1).map((from, k) => {
    const to = ends[k + 1], here = inside.filter(({ start, end }) => start <= from && to <= end), part = text.slice(from, to);
    if (!here.length) return part;
    const told = here.map(({ source, label }) => t("{rule} votes {label}", { rule: source, label })).join("; ");
    return el("mark", { class: colour(here[0].label, classes), title: told }, part);
  });
}

/** The rules behind the marks, each once; null where there are none. */
export function legend(spans, classes = []) {
  const rules = [...new Map(spans.map((one) => [one.source, one])).values()];
  if (!rules.length) return null;
  const entries = rules.map(({ source, label }) => el("li", {}, el("mark", { class: colour(label, classes) }, source), ` ${t("votes {label}", { label })}`));
  return el("ul", { class: "lit-legend", "aria-label": t("Marked words and the rules behind them") }, ...entries);
}
