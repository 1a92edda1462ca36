// One source: its figures, examples, and what muting it or editing its rule would change. Without a name: a new rule.
import { call, campaignPath } from "./api.js";
import { $, $$, el, scroll, toast } from "./dom.js";
import { picture, showEffect, words } from "./effect.js";
import { bar, measured, share, signed } from "./intervals.js";
import { itemPath, sourcePath } from "./links.js";
import { factsOf } from "./rules.js";
import { t } from "./texts.js";

const page = $("#source"), told = $("#source-told"), { campaign, name, metric } = page.dataset;
const form = $("#rule"), effect = $("#effect"), live = $("#rule-live"), ruleTold = $("#rule-told");
const NUMBERS = ["at_least", "at_most", "above", "below"];
let found = null, kept = null, timer, turn = 0;

const fact = (word, ...value) => [el("dt", {}, word), el("dd", {}, ...value)];

function facts({ source, model }) {
  const said = measured(source);
  return el("dl", { class: "facts" },
    ...fact(t("Votes on"), t("{n} samples ({share})", { n: source.votes, share: share(source.coverage) })),
    ...fact(t("Right, measured on samples that nobody chose"), said, bar({ low: source.accuracy_low, high: source.accuracy_high, value: source.accuracy, said })),
    ...fact(t("Right as believed of all samples it votes on"), share(source.believed)),
    ...fact(t("Differs from another source on"), share(source.conflicts)),
    ...fact(t("Weight of a vote, log-odds"), signed(source.weight, 2)),
    ...fact(t("Change of the loss if muted, closed form"), signed(source.muting, 5)),
    ...fact(t("Use"), `${source.use}: ${source.about} (${model || "–"})`));
}

function confusion({ source, classes }) {
  const head = el("tr", {}, el("th", { scope: "col" }, t("Class")), ...classes.map((one) => el("th", { scope: "col", class: "right" }, t("votes {label}", { label: one }))));
  const rows = classes.map((one, c) => el("tr", {}, el("th", { scope: "row" }, one), ...classes.map((_, v) =>
    el("td", { class: "right" }, el("span", {}, source.confusion[c][v] === null ? t("not yet") : share(source.confusion[c][v]), el("small", { class: "soft" }, ` ${share(source.confusion_low[c][v])} ${t("to")} ${share(source.confusion_high[c][v])}; ${t("believed {label}", { label: share(source.believed_confusion[c][v]) })}`))))));
  return el("details", { class: "card" }, el("summary", {}, t("Confusion")), el("p", { class: "soft small" }, t("Of the samples of a class, the share of its votes for each class: measured on {n} samples that nobody chose, with the 95 % interval, and as believed of all samples it votes on.", { n: source.measured_on })),
    scroll(t("Confusion"), el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows))));
}

function conflicts({ conflicts: others }) {
  if (!others.length) return null;
  const rows = others.map((one) => el("tr", {}, el("th", { scope: "row" }, el("a", { href: sourcePath(campaign, one.name), dir: "auto" }, one.name)), el("td", { class: "right" }, `${one.differ}`), el("td", { class: "right" }, `${one.both}`), el("td", { class: "right" }, share(one.differ / Math.max(1, one.both)))));
  const heads = [t("Other source"), t("Differ on"), t("Both vote on"), t("Share")].map((word, k) => el("th", { scope: "col", class: k ? "right" : null }, word));
  return el("section", { class: "card stack" }, el("h2", {}, t("Conflicts")), scroll(t("Conflicts"), el("table", { class: "sources" }, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...rows))));
}

function examples(title, list, said) {
  const rows = list.map((one) => el("li", {}, picture(one), el("a", { class: "quote", href: itemPath(campaign, one.item, one.trusted), dir: "auto" }, words(one)), el("span", { class: "said" }, said(one))));
  return el("section", { class: "card stack" }, el("h2", {}, title), list.length ? el("ul", { class: "examples-list" }, ...rows) : el("p", { class: "soft" }, t("None.")));
}

const against = ({ others, vote }) => Object.entries(others).filter(([, label]) => label !== vote).map(([who, label]) => t("{who} says {label}", { who, label })).join(", ");

function shown() {
  const kind = (one) => (one.trusted ? t("trusted") : one.truth ? t("answered") : t("not answered"));
  const rule = found.rule ? el("section", { class: "card stack" }, el("h2", {}, t("The rule")), el("pre", { class: "rule-text", dir: "auto" }, Object.entries(found.rule).filter(([key]) => key !== "name").map(([key, value]) => `${key} = ${JSON.stringify(value)}`).join("\n"))) : null;
  $("#source-facts").replaceChildren(...[el("div", { class: "source-grid" }, ...[el("section", { class: "card stack" }, el("h2", {}, t("Figures")), facts(found)), rule, conflicts(found)].filter(Boolean)), confusion(found)].filter(Boolean));
  $("#source-examples").replaceChildren(el("div", { class: "source-grid" },
    examples(t("Right, {n} in all", { n: found.n_right }), found.right, (one) => t("votes {vote}; {kind}", { vote: one.vote, kind: kind(one) })),
    examples(t("Wrong, {n} in all", { n: found.n_wrong }), found.wrong, (one) => t("votes {vote}, is {truth}; {kind}", { vote: one.vote, truth: one.truth, kind: kind(one) })),
    examples(t("Other sources differ"), found.conflicting, (one) => t("votes {vote}; {others}; {truth}", { vote: one.vote, others: against(one), truth: one.truth ? t("is {truth}", { truth: one.truth }) : t("believed {label}", { label: one.believed }) }))));
}

/* Muting */

function muting() {
  const muted = found.muted.includes(name), button = $("#mute");
  $("#source-mute").hidden = false;
  button.textContent = muted ? t("Show the effect of hearing it again") : t("Show the effect of muting it");
  button.onclick = () => showEffect(effect, campaign, metric, { muted: muted ? found.muted.filter((one) => one !== name) : [...found.muted, name] }, {
    title: muted ? t("If it is heard again") : t("If it is muted"), verb: muted ? t("Hear it again") : t("Mute it"), applied: () => done(t("It holds from the next model on.")),
  });
}

function done(message, to = null) {
  effect.replaceChildren(el("p", { class: "told good", role: "status" }, message));
  toast(message);
  setTimeout(() => { if (to) location.assign(to); else load(); }, 1200);
}

/* The rule */

const field = (key) => form.elements[key];
const listed = (key) => field(key).value.split("\n").map((one) => one.trim()).filter(Boolean);

function arrange() {
  const kind = field("kind").value, texts = ["keyword", "regex", "dictionary"].includes(kind);
  for (const part of $$("[data-for]", form)) part.hidden = !part.dataset.for.split(" ").includes(kind);
  const columns = texts ? [...kept.texts, ...kept.columns.filter((one) => !kept.texts.includes(one))] : kept.columns;
  options(field("column"), columns);
  options(field("label"), kept.classes);
}

function options(select, names) {
  const before = select.value;
  select.replaceChildren(...names.map((one) => el("option", { value: one, selected: one === before }, one)));
}

/** The rule as it is typed; what the form has no field for stays as it was. Null while something is missing. */
function draft() {
  const kind = field("kind").value, rule = { ...(found?.rule ?? {}), name: field("name").value.trim(), kind, column: field("column").value };
  if (kind !== "model") rule.label = field("label").value;
  if (kind === "keyword" || kind === "dictionary") rule.words = listed("words");
  if (kind === "keyword") { rule.unless = listed("unless"); rule.whole_word = field("whole_word").checked; }
  if (["keyword", "regex", "dictionary"].includes(kind)) rule.match_case = field("match_case").checked;
  if (kind === "regex") rule.pattern = field("pattern").value;
  if (kind === "threshold" || kind === "dictionary") {
    for (const key of kind === "dictionary" ? ["at_least"] : NUMBERS) {
      if (field(key).value === "") delete rule[key]; else rule[key] = Number(field(key).value);
    }
  }
  if (rule.unless && !rule.unless.length) delete rule.unless;
  const enough = { keyword: rule.words?.length, dictionary: rule.words?.length, regex: rule.pattern, threshold: NUMBERS.some((key) => key in rule), model: true }[kind];
  return rule.name && rule.column && enough ? rule : null;
}

function fill(rule) {
  field("name").value = rule.name ?? "";
  field("kind").value = rule.kind ?? "keyword";
  arrange();
  if (rule.column) field("column").value = rule.column;
  if (rule.label) field("label").value = rule.label;
  field("words").value = (rule.words ?? []).join("\n");
  field("unless").value = (rule.unless ?? []).join("\n");
  field("pattern").value = rule.pattern ?? "";
  for (const key of NUMBERS) field(key).value = rule[key] ?? "";
  field("whole_word").checked = rule.whole_word ?? true;
  field("match_case").checked = rule.match_case ?? false;
}

/** All rules of the campaign with this one in its place, or without it. */
function rulesWith(rule) {
  const place = kept.rules.findIndex((one) => one.name === name);
  if (place < 0) return [...kept.rules, rule];
  return rule ? kept.rules.map((one, k) => (k === place ? rule : one)) : kept.rules.filter((_, k) => k !== place);
}

async function tryOut() {
  const rule = draft(), mine = (turn += 1);
  $("#rule-try").disabled = !rule;
  ruleTold.textContent = "";
  if (!rule) return live.replaceChildren();
  try {
    const rules = rulesWith(rule), tried = await call("POST", campaignPath(campaign, "/rules"), { rules });
    if (mine !== turn) return;
    const one = tried.rules[name ? rules.indexOf(rule) : rules.length - 1];
    if (one.problem) throw new Error(one.problem);
    live.replaceChildren(...factsOf(one, tried));
  } catch (problem) {
    if (mine !== turn) return;
    live.replaceChildren();
    $("#rule-try").disabled = true;
    ruleTold.textContent = problem.message;
    ruleTold.className = "told bad";
  }
}

async function editing() {
  kept = await call("GET", campaignPath(campaign, "/rules"));
  const mine = kept.rules.find((one) => one.name === name);
  $("#source-no-rule").hidden = !name || Boolean(mine);
  form.hidden = Boolean(name) && !mine;
  if (!name && !kept.columns.length) {
    form.hidden = true;
    told.textContent = t("The items of this campaign have no content that a rule could look at.");
  }
  if (form.hidden) return;
  field("name").readOnly = Boolean(name);
  field("kind").disabled = Boolean(name);
  $("#rule-remove").hidden = !name;
  fill(mine ?? {});
  form.oninput = () => { arrange(); clearTimeout(timer); timer = setTimeout(tryOut, 300); };
  form.onsubmit = (event) => {
    event.preventDefault();
    const rule = draft();
    if (!rule) return;
    const to = name ? null : sourcePath(campaign, rule.name);
    const proposal = { muted: found?.muted ?? now(), rules: rulesWith(rule) };
    showEffect(effect, campaign, metric, proposal, { title: t("With this rule"), verb: name ? t("Use the rule as it is typed") : t("Add the rule"), applied: () => done(t("The rule votes on all items from the next model on."), to ? `/c/${encodeURIComponent(campaign)}/lead/sources` : null) });
  };
  $("#rule-remove").onclick = () => showEffect(effect, campaign, metric, { muted: found.muted.filter((one) => one !== name), rules: rulesWith(null) }, {
    title: t("Without this rule"), verb: t("Remove the rule"), applied: () => done(t("The rule is removed from the next model on."), `/c/${encodeURIComponent(campaign)}/lead/sources`),
  });
  await tryOut();
}

const now = () => kept.muted;

async function load() {
  try {
    if (name) {
      found = await call("GET", campaignPath(campaign, `/source?name=${encodeURIComponent(name)}`));
      told.textContent = found.muted.includes(name) && found.source.use !== "muted by you" ? t("It is muted from the next model on; the figures are those of the last one.") : "";
      shown();
      muting();
    }
    $("#source-change").hidden = false;
    await editing();
  } catch (problem) {
    told.textContent = problem.message;
    told.className = "told bad";
  }
}

await load();
