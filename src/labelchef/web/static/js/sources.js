// What is known of each source: a table, and the confusion of a source on demand.
import { call, campaignPath } from "./api.js";
import { $, el } from "./dom.js";

const box = $("#sources"), told = $("#sources-told");
const digits = (value, n) => (value === null ? "–" : value.toFixed(n));
const signed = (value, n) => (value === null ? "–" : `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(n)}`);
const share = (value) => (value === null ? "–" : `${Math.round(100 * value)}\u202f%`);
const right = (text) => el("td", { class: "right" }, text);
const SVG = "http://www.w3.org/2000/svg";

/** The interval from clean samples as a bar from 0 to 1, what is believed as a line on it. */
function bar(one) {
  const part = (name, attributes) => {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    return node;
  };
  const said = `accuracy ${digits(one.accuracy, 2)}, interval ${digits(one.accuracy_low, 2)} to ${digits(one.accuracy_high, 2)}`;
  const drawn = part("svg", { class: "interval", viewBox: "0 0 100 12", preserveAspectRatio: "none", role: "img", "aria-label": said });
  drawn.append(part("rect", { class: "whole", x: 0, y: 4, width: 100, height: 4 }));
  drawn.append(part("rect", { class: "range", x: 100 * one.accuracy_low, y: 3, width: 100 * Math.max(one.accuracy_high - one.accuracy_low, 0.005), height: 6 }));
  if (one.accuracy !== null) drawn.append(part("rect", { class: "believed", x: Math.min(100 * one.accuracy, 98.5), y: 0, width: 1.5, height: 12 }));
  return drawn;
}

/** Of the samples of each class, as believed, the share of the votes for each class; the interval from clean samples below. */
function confusion(one, classes, id) {
  const head = el("tr", {}, el("th", { scope: "col" }, "Class"), ...classes.map((name) => el("th", { scope: "col", class: "right" }, `votes ${name}`)));
  const rows = classes.map((name, c) => el("tr", {}, el("th", { scope: "row" }, name), ...classes.map((_, v) =>
    right(el("span", {}, share(one.confusion[c][v]), el("small", { class: "soft" }, ` ${share(one.confusion_low[c][v])} to ${share(one.confusion_high[c][v])}`))))));
  const words = `Of the samples of a class, as believed, the share of the votes of ${one.name} for each class, with the 95 % interval from the ${one.clean_votes} clean samples it votes on.`;
  return el("tr", { id, hidden: true }, el("td", { colspan: "9" }, el("p", { class: "soft small" }, words),
    el("div", { class: "scroll", tabindex: "0" }, el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows)))));
}

function lines(one, classes, k) {
  const more = confusion(one, classes, `confusion-${k}`);
  const button = el("button", { class: "quiet", type: "button", "aria-expanded": "false", "aria-controls": more.id, onclick: () => {
    more.hidden = !more.hidden;
    button.setAttribute("aria-expanded", `${!more.hidden}`);
  } }, one.name);
  const use = el("td", { class: "wrap" }, el("span", { class: `badge ${{ turned: "paused", muted: "stopped" }[one.use] ?? ""}` }, one.use), el("small", { class: "soft" }, ` ${one.about}`));
  const accuracy = el("td", {}, bar(one), el("small", { class: "soft num" }, `${digits(one.accuracy_low, 2)} to ${digits(one.accuracy_high, 2)}`));
  const line = el("tr", {}, el("th", { scope: "row" }, button), right(`${one.votes}`), right(share(one.coverage)), right(digits(one.accuracy, 3)), accuracy,
    right(share(one.conflicts)), right(signed(one.weight, 2)), right(signed(one.muting, 5)), use);
  return [line, more];
}

try {
  const found = await call("GET", campaignPath(box.dataset.campaign, "/sources"));
  told.textContent = found.notes.join(" ");
  if (found.sources.length) {
    const heads = ["Source", "Votes", "Coverage", "Accuracy", "95 % interval", "Conflicts", "Weight", "If muted", "Use"];
    const head = heads.map((word, k) => el("th", { scope: "col", class: [0, 4, 8].includes(k) ? null : "right" }, word));
    const body = found.sources.flatMap((one, k) => lines(one, found.classes, k));
    box.replaceChildren(el("p", { class: "soft small" }, "Click a source to see its confusion."),
      el("div", { class: "scroll", tabindex: "0" }, el("table", { class: "sources" }, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...body))));
  }
} catch (problem) {
  told.textContent = problem.message;
  told.className = "told bad";
}
