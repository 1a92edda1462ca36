// What is known of each source: all of them in a table that can be searched, sorted and turned over.
import { call, campaignPath } from "./api.js";
import { $, el, right, scroll } from "./dom.js";
import { bar, digits, measured, share, signed } from "./intervals.js";
import { sourcePath } from "./links.js";
import { t } from "./texts.js";

const PAGE = 50;
const box = $("#sources"), told = $("#sources-told"), find = $("#sources-find"), pages = $("#sources-pages");
const campaign = box.dataset.campaign;
const COLUMNS = [
  ["name", t("Source"), false], ["votes", t("Votes"), true], ["accuracy", t("Measured"), true], [null, t("95 % interval"), false],
  ["believed", t("Believed"), true], ["conflicts", t("Conflicts"), true], ["weight", t("Weight"), true], ["muting", t("If muted"), true], ["use", t("Use"), false],
];
const asked = { search: "", sort: "votes", falling: true, first: 0 };
let turn = 0, timer;

function line(one) {
  const said = measured(one);
  const kind = { turned: "paused", muted: "stopped", "muted by you": "stopped", "muted, from the next model on": "stopped" }[one.use] ?? "";
  return el("tr", {},
    el("th", { scope: "row" }, el("a", { href: sourcePath(campaign, one.name), dir: "auto" }, one.name), one.rule ? el("small", { class: "soft" }, ` ${t("rule")}`) : null),
    right(`${one.votes} (${share(one.coverage)})`), right(measured(one, true)),
    el("td", {}, bar({ low: one.accuracy_low, high: one.accuracy_high, value: one.accuracy, said }), el("small", { class: "soft num" }, `${digits(one.accuracy_low, 2)} ${t("to")} ${digits(one.accuracy_high, 2)}`)),
    right(share(one.believed)), right(share(one.conflicts)), right(signed(one.weight, 2)), right(signed(one.muting, 5)),
    el("td", { class: "wrap" }, el("span", { class: `badge ${kind}`, title: one.about }, one.use)));
}

function heads() {
  return COLUMNS.map(([key, word, number]) => {
    if (!key) return el("th", { scope: "col" }, word);
    const now = asked.sort === key;
    const button = el("button", { class: "quiet", type: "button", onclick: () => { asked.falling = now ? !asked.falling : number; asked.sort = key; asked.first = 0; show(); } }, `${word}${now ? (asked.falling ? " ↓" : " ↑") : ""}`);
    return el("th", { scope: "col", class: number ? "right" : null, "aria-sort": now ? (asked.falling ? "descending" : "ascending") : null }, button);
  });
}

async function show() {
  const mine = (turn += 1), query = new URLSearchParams({ ...asked, limit: PAGE });
  try {
    const found = await call("GET", campaignPath(campaign, `/sources?${query}`));
    if (mine !== turn) return;
    told.replaceChildren(found.notes.join(" "), ...found.harmful.flatMap((name) => [" ", el("a", { class: "button little", href: sourcePath(campaign, name) }, t("Mute {name}", { name }))]));
    told.className = "told";
    find.hidden = !found.total;
    pages.hidden = found.found <= PAGE;
    $("#sources-place").textContent = t("{from} to {to} of {all}", { from: found.found ? asked.first + 1 : 0, to: asked.first + found.sources.length, all: found.found });
    $("#sources-before").disabled = asked.first === 0;
    $("#sources-after").disabled = asked.first + PAGE >= found.found;
    if (!found.total) return box.replaceChildren();
    const body = found.sources.length ? found.sources.map(line) : [el("tr", {}, el("td", { colspan: `${COLUMNS.length}`, class: "soft" }, t("No source has this in its name.")))];
    const sorted = document.activeElement?.closest("th") ? [...document.activeElement.closest("tr").children].indexOf(document.activeElement.closest("th")) : -1;
    box.replaceChildren(scroll(t("Sources"), el("table", { class: "sources" }, el("thead", {}, el("tr", {}, ...heads())), el("tbody", {}, ...body))));
    if (sorted >= 0) box.querySelectorAll("thead th")[sorted]?.querySelector("button")?.focus();
  } catch (problem) {
    if (mine !== turn) return;
    told.textContent = problem.message;
    told.className = "told bad";
  }
}

find.addEventListener("submit", (event) => event.preventDefault());
$("#sources-search").addEventListener("input", (event) => {
  clearTimeout(timer);
  timer = setTimeout(() => { asked.search = event.target.value.trim(); asked.first = 0; show(); }, 250);
});
$("#sources-before").addEventListener("click", () => { asked.first = Math.max(0, asked.first - PAGE); show(); });
$("#sources-after").addEventListener("click", () => { asked.first += PAGE; show(); });
await show();
