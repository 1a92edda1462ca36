// What the answers brought: sums by person, source and class, and the items with the largest effects.
import { call, campaignPath } from "./api.js";
import { $, el } from "./dom.js";
import { itemLink } from "./item.js";
import { t } from "./texts.js";

const box = $("#receipts"), told = $("#receipts-told");
const signed = (value) => (value === null ? "–" : `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(5)}`);
const whole = (value) => (value === null ? "–" : `${Math.round(value)}`);
const share = (value) => (value === null ? "–" : `${Math.round(100 * value)}\u202f%`);
const right = (text) => el("td", { class: "right" }, text);
const yes = (value) => (value === null ? "–" : value ? t("yes") : t("no"));

function table(caption, heads, left, rows) {
  const head = heads.map((word, k) => el("th", { scope: "col", class: k < left ? null : "right" }, word));
  return el("div", { class: "scroll", tabindex: "0" }, el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows)));
}

const sumLine = (one) => el("tr", {}, el("td", {}, one.group), el("th", { scope: "row" }, one.name), right(`${one.answers}`), right(`${one.against}`), right(`${one.changed}`),
  right(signed(one.predicted)), right(signed(one.effect)), right(signed(one.joint)), right(whole(one.flips)));

const itemLine = (one) => el("tr", {}, el("th", { scope: "row" }, itemLink(box.dataset.campaign, one.item)), el("td", {}, one.label), el("td", { class: "wrap" }, one.people), el("td", { class: "wrap" }, one.sources || "–"),
  el("td", {}, one.suggested ?? "–"), right(`${one.round}`), right(share(one.probability_before)), right(yes(one.changed)), right(signed(one.predicted_effect)), right(signed(one.effect)), right(whole(one.flips)));

try {
  const found = await call("GET", campaignPath(box.dataset.campaign, "/receipts"));
  told.textContent = found.notes.join(" ");
  if (found.items.length) {
    box.replaceChildren(
      table(t("Sums"), [t("Of"), t("Name"), t("Answers"), t("Against"), t("Changed what was believed"), t("Predicted"), t("Sum of single effects"), t("Joint change"), t("Predictions changed")], 2, found.sums.map(sumLine)),
      table(t("Items with the largest effects; the export has all"), [t("Item"), t("Class"), t("People"), t("Sources"), t("Suggested"), t("Round"), t("Probability before"), t("Changed"), t("Predicted"), t("Effect"), t("Predictions changed")], 5, found.items.map(itemLine)));
  }
} catch (problem) {
  told.textContent = problem.message;
  told.className = "told bad";
}
