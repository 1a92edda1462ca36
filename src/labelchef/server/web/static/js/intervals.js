// Shares with intervals: numbers and bars.
import { svg } from "./dom.js";
import { t } from "./texts.js";

export const digits = (value, n) => (value === null ? "–" : value.toFixed(n));
export const signed = (value, n) => (value === null ? "–" : `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(n)}`);
export const share = (value) => (value === null ? "–" : `${Math.round(100 * value)}\u202f%`);

/** The measured accuracy of a source in words; `brief`: without its interval. */
export function measured(one, brief = false) {
  if (one.accuracy === null) return t("not yet ({n})", { n: one.measured_on });
  const said = { share: share(one.accuracy), n: one.measured_on, low: share(one.accuracy_low), high: share(one.accuracy_high) };
  return brief ? t("{share} of {n}", said) : t("{share} of {n} votes; 95 % interval {low} to {high}", said);
}

/** An interval as a bar from 0 to 1, with a line at `value`. */
export function bar({ low, high, value, said }) {
  const drawn = svg("svg", { class: "interval", viewBox: "0 0 100 12", preserveAspectRatio: "none", role: "img", "aria-label": said });
  drawn.append(svg("rect", { class: "whole", x: 0, y: 4, width: 100, height: 4 }));
  drawn.append(svg("rect", { class: "range", x: 100 * low, y: 3, width: 100 * Math.max(high - low, 0.005), height: 6 }));
  if (value !== null) drawn.append(svg("rect", { class: "value", x: Math.min(100 * value, 98.5), y: 0, width: 1.5, height: 12 }));
  return drawn;
}
