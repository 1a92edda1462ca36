// Selectors compared on a campaign's own labels: asks for the replays, shows curves and a table.
import { $, $$, el } from "./dom.js";
import { t } from "./texts.js";
import { resume, run } from "./jobs.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 640, HEIGHT = 280, LEFT = 52, BELOW = 34, ABOVE = 12, COLOURS = 8;
const JUDGES = { test: t("test samples"), validation: t("validation samples that judge"), steering: t("validation samples that steer") };
const form = $("#compare");
const told = $(".told", form);
const digits = (value, n = 3) => (value === null ? "–" : value.toFixed(n));
const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(3)}`;

function drawn(name, attributes, ...children) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

/** One line a selector, in the colour of its row; the campaign's own order is dashed. */
function chart(found) {
  const all = found.standings.flatMap((one) => one.curve);
  const low = Math.min(...all), high = Math.max(...all), room = Math.max(0.08 * (high - low), 0.005);
  const x = (labels) => LEFT + ((WIDTH - LEFT - 12) * labels) / found.labels;
  const y = (value) => HEIGHT - BELOW - ((HEIGHT - BELOW - ABOVE) * (value - low + room)) / (high - low + 2 * room);
  const parts = [];
  for (const share of [0, 1 / 3, 2 / 3, 1]) {
    const value = low + share * (high - low);
    parts.push(drawn("line", { class: "grid", x1: LEFT, x2: WIDTH - 12, y1: y(value), y2: y(value) }));
    parts.push(drawn("text", { x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, value.toFixed(3)));
  }
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    const labels = Math.round(share * found.labels);
    parts.push(drawn("text", { x: x(labels), y: HEIGHT - 12, "text-anchor": "middle" }, `${labels}`));
  }
  const lines = found.standings.map((one, k) => {
    const points = found.asked.map((labels, t) => `${x(labels).toFixed(1)},${y(one.curve[t]).toFixed(1)}`).join(" ");
    return drawn("polyline", { class: `line line-${k % COLOURS}${one.difference ? "" : " own"}`, points });
  });
  lines.sort((a, b) => a.classList.contains("own") - b.classList.contains("own")); // on top: it may coincide with another
  const said = t("{metric} of each selector as labels come in; the table below has the figures.", { metric: found.metric });
  return drawn("svg", { class: "curves", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": said }, ...parts, ...lines);
}

function row(one, k) {
  const area = one.area_half === null ? digits(one.area) : `${digits(one.area)} ± ${digits(one.area_half)}`;
  const against = one.difference && t("{value} ({low} to {high})", { value: signed(one.difference.change), low: signed(one.difference.low), high: signed(one.difference.high) });
  const figures = [...one.after.map((value) => digits(value)), area, against ?? "–"];
  const last = [digits(one.labels_to_reach, 0), one.suggestion_share === null ? "–" : `${Math.round(100 * one.suggestion_share)} %`, digits(one.seconds, 2)];
  const cell = (text) => el("td", { class: "right" }, text);
  return el("tr", {}, el("th", { scope: "row" }, el("span", { class: `swatch swatch-${k % COLOURS}`, "aria-hidden": "true" }), one.selector),
    ...figures.map(cell), el("td", {}, one.verdict ?? ""), ...last.map(cell));
}

function show(found) {
  const heads = [t("Selector"), "25 %", "50 %", "75 %", "100 %", t("Area"), t("Against as asked"), t("Verdict"), t("Labels to {level}", { level: digits(found.level) }), t("Suggestion right"), t("Seconds")];
  const head = heads.map((word, k) => el("th", { scope: "col", class: k === 0 || k === 7 ? null : "right" }, word));
  const table = el("table", {}, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...found.standings.map(row)));
  const better = found.metric === "loss" ? t("less is better") : t("more is better");
  const figure = el("figure", { class: "card" }, el("h2", {}, t("{metric} per label", { metric: form.dataset.metric })), chart(found),
    el("figcaption", { class: "soft small" }, t("On {n} {samples} ({better}), after a share of {labels} labels, {batch} a round. Area is the mean of the curve; the dashed line is the order in which this campaign got its answers.", { n: found.samples, samples: JUDGES[found.split], better, labels: found.labels, batch: found.batch_size })));
  $("#compared").replaceChildren(figure, el("div", { class: "scroll", tabindex: "0" }, table),
    el("ul", { class: "soft small" }, ...found.notes.map((note) => el("li", {}, note))));
}

const box = $(".job", form);
const done = (job) => { if (job.result) show(job.result); };

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = $("button[type=submit]", form);
  const selectors = $$("input[name=selectors]:checked", form).map((tick) => tick.value);
  told.className = "told";
  told.textContent = "";
  button.disabled = true;
  try {
    await run(form.dataset.campaign, { kind: "compare", ...(selectors.length ? { selectors } : {}) }, box, done);
  } catch (problem) {
    told.textContent = problem.message;
    told.className = "told bad";
  } finally {
    button.disabled = false;
  }
});
resume(form.dataset.campaign, [box], done).catch(() => null);
