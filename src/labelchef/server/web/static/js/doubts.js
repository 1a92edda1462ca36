// Trusted items that people answer otherwise: the trusted label may be wrong, or the answer.
import { call, campaignPath } from "./api.js";
import { $, el, head, scroll } from "./dom.js";
import { itemPath } from "./links.js";
import { t } from "./texts.js";

const list = $("#doubts"), campaign = list.dataset.campaign;
const link = (key) => el("a", { class: "id", href: itemPath(campaign, key, true) }, key);

function doubted(found) {
  if (!found.doubted.length) return null;
  const lines = found.doubted.map((one) => el("tr", {}, el("th", { scope: "row" }, link(one.item)), el("td", { class: "wrap" }, one.trusted),
    el("td", { class: "wrap" }, one.answers.map(([who, label]) => `${who}: ${label ?? t("ambiguous")}`).join(", "))));
  return el("li", { class: "stack" }, el("h2", { id: "doubted-title" }, t("Trusted labels in doubt")),
    el("p", { class: "soft small" }, t("At least two people, and more than half of those who were shown it, say something else.")),
    scroll(t("Trusted labels in doubt"), el("table", {}, head([t("Item"), t("Trusted label"), t("Answers")], 3), el("tbody", {}, ...lines))));
}

function wrong(found) {
  if (!found.wrong.length) return null;
  const lines = found.wrong.map((one) => el("tr", {}, el("th", { scope: "row" }, link(one.item)), el("td", {}, one.person), el("td", { class: "wrap" }, one.answer ?? t("ambiguous")), el("td", { class: "wrap" }, one.trusted), el("td", { class: "wrap soft" }, one.note ?? "")));
  return el("li", { class: "stack" }, el("h2", { id: "wrong-title" }, t("Hidden gold answered wrong")),
    scroll(t("Hidden gold answered wrong"), el("table", {}, head([t("Item"), t("Person"), t("Answer"), t("Trusted label"), t("Note")], 5), el("tbody", {}, ...lines))));
}


const say = (...parts) => list.replaceChildren(el("li", { class: "told", role: "status" }, ...parts));
say(t("Computing; with much data this takes as long as the first model…"));
try {
  const found = await call("GET", campaignPath(campaign, "/quality"));
  list.replaceChildren(...[doubted(found), wrong(found)].filter(Boolean));
  $("#nothing").hidden = list.children.length > 0;
  if (!found.gold_share) $("#nothing p").textContent = t("There is no hidden gold: set “Share of hidden gold” under Settings, and “Share shown blind” at least as large.");
} catch (problem) { say(problem.message); }
