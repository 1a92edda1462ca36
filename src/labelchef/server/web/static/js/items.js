// The browser of items: select with mouse or keys, act on one or many, similar items. The list itself comes with the page.
import { call, campaignPath } from "./api.js";
import { $, $$, el, svg, typing } from "./dom.js";
import { itemLink } from "./item.js";
import { itemPath } from "./links.js";
import { renew } from "./page.js";
import { t } from "./texts.js";

const act = $("#act");
const single = act?.dataset.item;
let all = false; // all that match are meant, not those ticked

const lines = () => $$("#items .item-line");
const picked = () => (single !== undefined ? [single] : lines().filter((line) => $(".pick", line)?.checked).map((line) => line.dataset.item));
const matches = () => Number($("#items")?.dataset.matches ?? 0);

function show() {
  if (!act || single !== undefined) return;
  const n = picked().length;
  for (const line of lines()) line.classList.toggle("picked", all || Boolean($(".pick", line)?.checked));
  act.hidden = n === 0 && !all && $("#done").childElementCount === 0;
  $("#picked").textContent = all ? t("All {n} that match are selected", { n: matches() }) : t("{n} selected", { n });
  const most = Number(act.dataset.most);
  $("#pick-all").disabled = matches() > most;
  $("#pick-all").textContent = matches() > most ? t("All that match: more than {most}, narrow the filters", { most }) : t("Select all {n} that match", { n: matches() });
  for (const button of $$("[data-action]", act)) button.disabled = n === 0 && !all;
}

function pick(which) {
  all = false;
  for (const box of $$("#items .pick")) box.checked = which;
  show();
}

if (act && single === undefined) {
  document.addEventListener("change", (event) => { if (event.target.matches(".pick")) { all = false; show(); } });
  document.addEventListener("renewed", () => { all = false; show(); });
  $("#pick-page").addEventListener("click", () => pick(true));
  $("#pick-none").addEventListener("click", () => { $("#done").replaceChildren(); pick(false); });
  $("#pick-all").addEventListener("click", () => { for (const box of $$("#items .pick")) box.checked = true; all = true; show(); });
  show();
}

const ASKED = {
  decide: (n, name) => n === 1 ? t("Decide 1 item as “{name}”? The decision stands in the ledger with your name.", { name }) : t("Decide {n} items as “{name}”? Each decision stands in the ledger with your name.", { n, name }),
  reopen: (n) => n === 1 ? t("Take the decision on this item back and have it asked again?") : t("Take the decisions on {n} items back and have them asked again?", { n }),
  ask: (n) => n === 1 ? t("Have this item asked first in the next batch? Without a label it counts in the budget.") : t("Have {n} items asked first in the next batches? Those without a label count in the budget.", { n }),
};

/** The filters in the address, as the API takes them. */
function filters() {
  const query = Object.fromEntries([...new URLSearchParams(location.search)].filter(([name, value]) => value !== "" && name !== "after"));
  if ("suspect" in query) query.suspect = query.suspect === "true";
  return query;
}

/** The labels of items as this page shows them: a decision that was made since is not overruled without a word. */
function seen(items) {
  const label = (node) => (node?.dataset.label ? Number(node.dataset.label) : null);
  if (single !== undefined) return { [single]: label($("#item-title")) };
  const shown = new Map(lines().map((line) => [line.dataset.item, label(line)]));
  return Object.fromEntries(items.filter((item) => shown.has(item)).map((item) => [item, shown.get(item)]));
}

let sent = null; // the request that is under way or failed: sent again with the same id
async function run(action, overrule = false) {
  const items = picked();
  const n = all ? matches() : items.length;
  const chosen = $("#act-label");
  if (action === "decide" && chosen.value === "") {
    $("#done").replaceChildren(el("p", { class: "told bad" }, t("Choose a class first.")));
    chosen.focus();
    return;
  }
  if (!overrule && (n > 1 || action !== "decide") && !confirm(ASKED[action](n, chosen.selectedOptions[0].textContent))) return;
  const body = { action, ...(action === "decide" ? { label: Number(chosen.value), seen: overrule ? {} : seen(items) } : {}), ...(all ? { query: filters(), count: n } : { items }) };
  const text = JSON.stringify(body);
  if (sent?.text !== text) sent = { text, id: crypto.randomUUID?.() ?? `${Date.now()}-${Math.random().toString(36).slice(2)}` };
  const buttons = $$("button", act);
  buttons.forEach((button) => { button.disabled = true; });
  try {
    const answer = await call("POST", campaignPath(act.dataset.campaign, "/items/actions"), { ...body, request_id: sent.id });
    sent = null;
    told(answer);
    await renew();
  } catch (error) {
    if (error.status) sent = null;
    if (error.code === "changed" && !overrule && confirm(`${error.message}. ${t("Overrule it?")}`)) {
      buttons.forEach((button) => { button.disabled = false; });
      await run(action, true);
      return;
    }
    if (error.code === "changed") renew();
    $("#done").replaceChildren(el("p", { class: "told bad" }, error.message));
  } finally {
    buttons.forEach((button) => { button.disabled = false; });
    show();
  }
}

/** What became of the items. */
function told(answer) {
  const refused = answer.fates.filter((one) => !one.done);
  const parts = [el("p", {}, el("b", {}, t("{n} done", { n: answer.done })), refused.length ? `, ${t("{n} not possible", { n: refused.length })}` : "", ". ", answer.message)];
  if (refused.length) parts.push(el("ul", {}, ...refused.map((one) => el("li", {}, el("b", {}, one.item), `: ${one.message}`))));
  $("#done").replaceChildren(...parts);
}

for (const button of $$("[data-action]", act ?? document.createElement("div"))) button.addEventListener("click", () => run(button.dataset.action));

// Keys: arrows move between items, x selects, Enter opens (it is a link), / goes to the search.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const box = event.target.matches?.(".pick");
  if (typing(event) && !box) return;
  const links = $$("#items .item-link");
  const at = links.findIndex((link) => link.closest("li").contains(document.activeElement));
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    if (!links.length) return;
    const next = event.key === "ArrowDown" ? Math.min(at + 1, links.length - 1) : Math.max(at - 1, 0);
    links[next].focus();
    links[next].closest("li").scrollIntoView({ block: "nearest" });
  } else if (event.key === "x" && at >= 0) {
    const tick = $(".pick", links[at].closest("li"));
    if (!tick) return;
    tick.checked = !tick.checked;
    all = false;
    show();
  } else if (event.key === "/" && $("#f-q")) $("#f-q").focus();
  else return;
  event.preventDefault();
});

// On a small screen the filters would hide the list; the chips say which are active.
if (matchMedia("(max-width: 40rem)").matches) $("#more-filters")?.removeAttribute("open");

// An empty filter does not belong into the address.
$("#filters")?.addEventListener("formdata", (event) => {
  for (const [name, value] of [...event.formData]) if (value === "") event.formData.delete(name);
});

const near = $("#similar");
if (near) {
  const classes = JSON.parse(near.dataset.classes);
  const word = (k) => (k === null ? "–" : classes[k]);
  try {
    const found = await call("GET", campaignPath(near.dataset.campaign, `/items/${encodeURIComponent(near.dataset.item)}/similar`));
    near.replaceChildren(...found.items.map(({ line, similarity }) => el("li", { class: "item-line" },
      line.image ? el("img", { class: "item-thumb", src: line.image, alt: "", loading: "lazy", width: "72", height: "72" }) : null,
      el("div", { class: "item-body" },
        el("p", { class: "item-top" }, itemLink(near.dataset.campaign, line.item), el("span", { class: "soft small" }, t("similarity {x}", { x: similarity.toFixed(2) }))),
        el("p", { class: "excerpt", dir: "auto" }, line.excerpt.map((piece) => piece.text).join("")),
        el("dl", { class: "line-facts" },
          ...[[t("Label"), line.label], [t("Model"), line.predicted], [t("Sources"), line.weak]].map(([name, k]) => el("div", {}, el("dt", {}, name), el("dd", {}, word(k)))))))));
    $("#similar-note").textContent = t("Nearest by their features, of {n} items compared", { n: found.looked_at });
  } catch (error) {
    $("#similar-note").textContent = error.message;
  }
}

// The map: a click on a point opens its item. The list has the same items for those who use the keyboard.
const KINDS = { weak: t("still weak"), validation: t("trusted"), cleaned: t("with a label"), selected: t("asked now") };

function draw(points) {
  const [W, H, PAD] = [860, 420, 14];
  const range = (name) => [Math.min(...points.map((one) => one[name])), Math.max(...points.map((one) => one[name]))];
  const [left, right] = range("x"), [low, high] = range("y");
  const x = (value) => PAD + ((W - 2 * PAD) * (value - left)) / (right - left || 1);
  const y = (value) => H - PAD - ((H - 2 * PAD) * (value - low)) / (high - low || 1);
  const order = Object.keys(KINDS);
  const dots = [...points].sort((a, b) => order.indexOf(a.what) - order.indexOf(b.what)).map((one) => {
    const dot = svg("circle", { class: one.what, cx: x(one.x).toFixed(1), cy: y(one.y).toFixed(1), r: one.what === "weak" ? 3 : 5 }, svg("title", {}, one.item));
    dot.addEventListener("click", () => location.assign(itemPath(mapBox.dataset.campaign, one.item, one.split === "val")));
    return dot;
  });
  return svg("svg", { class: "item-map", viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": t("Map of {n} items", { n: points.length }) }, ...dots);
}

const mapBox = $("#map-box");
let mapped = false;
async function showMap() {
  if (!mapBox.open || mapped) return;
  mapped = true;
  try {
    const { points } = await call("GET", campaignPath(mapBox.dataset.campaign, "/map"));
    $("#map").replaceChildren(draw(points));
    $("#map-note").replaceChildren(t("A sample of {n} items in two dimensions; a click opens the item.", { n: points.length }), ...Object.entries(KINDS).flatMap(([kind, words]) => [el("span", { class: `map-key ${kind}`, "aria-hidden": "true" }), words]));
  } catch (error) {
    mapped = false;
    $("#map-note").textContent = error.message;
  }
}
mapBox?.addEventListener("toggle", showMap);
if (mapBox && location.hash === "#map-box") mapBox.open = true;

// A list stays as it is while one looks at it; once a minute the page looks whether there is a newer model.
const news = $("#news");
if (act && news) setInterval(async () => {
  if (document.hidden) return;
  try {
    const now = await call("GET", campaignPath(act.dataset.campaign));
    if (String(now.round) === act.dataset.round) return;
    news.replaceChildren(t("There is a newer round."), " ", el("a", { href: location.href }, t("Load the list again")));
    news.hidden = false;
  } catch { /* the next minute */ }
}, 60000);
