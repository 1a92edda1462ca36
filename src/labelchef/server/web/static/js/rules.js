// Rules without code: typed, tried on the rows at once, kept with the files of a new campaign.
import { call } from "./api.js";
import { $, el } from "./dom.js";
import { number, parts, t } from "./texts.js";

const BOUNDS = { at_least: t("at least"), at_most: t("at most"), above: t("above"), below: t("below") };
const percent = (value) => `${Math.round(100 * value)}\u202f%`;
const words = (text) => text.split(",").map((word) => word.trim()).filter(Boolean);

/** What a rule does, in words. */
function said(rule) {
  if (rule.kind === "keyword" || rule.kind === "dictionary") return t("{column} has {words}", { column: rule.column, words: rule.words.join(", ") });
  if (rule.kind === "regex") return t("{column} matches {pattern}", { column: rule.column, pattern: rule.pattern });
  if (rule.kind === "model") return t("what {column} says", { column: rule.column });
  return t("{column} is {bounds}", { column: rule.column, bounds: Object.keys(BOUNDS).filter((key) => key in rule).map((key) => `${BOUNDS[key]} ${rule[key]}`).join(t(" and ")) });
}

/** The text of an example with its match marked. */
function marked({ text, span, item, truth }) {
  const [from, to] = span ?? [0, 0];
  return el("li", {}, el("span", { class: "quote", title: item, dir: "auto" }, text.slice(0, from), span ? el("mark", {}, text.slice(from, to)) : "", text.slice(to)), truth ? el("b", {}, truth) : null);
}

const accuracy = (one) => (one.n_trusted ? t("{share} ({n} of {all})", { share: percent(one.n_right / one.n_trusted), n: one.n_right, all: one.n_trusted }) : t("no trusted row"));

/** What is known of a rule that is typed, as nodes: figures and examples. */
export function factsOf(one, all) {
  const interval = one.n_trusted ? ` ${t("95 % interval {low} to {high}.", { low: percent(one.low), high: percent(one.high) })}` : "";
  const chance = one.n_trusted && one.chance !== null ? ` ${t("The same votes by chance: {share}.", { share: percent(one.chance) })}` : "";
  const facts = [
    [t("Votes on"), t("{n} of {all} rows ({share})", { n: number(one.n_votes), all: number(one.n_rows), share: percent(one.n_votes / Math.max(1, one.n_rows)) })],
    [t("Differs from other rules on"), number(one.n_conflicts)], [t("Right on trusted rows"), accuracy(one) + (interval ? `.${interval}${chance}` : "")],
    [t("All rules together vote on"), t("{share} of the rows", { share: percent(all.n_covered / Math.max(1, all.n_rows)) })],
  ];
  const list = (title, rows) => (rows.length ? el("div", {}, el("h3", {}, title), el("ul", { class: "near" }, ...rows.map(marked))) : null);
  return [el("dl", { class: "facts" }, ...facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
    el("div", { class: "examples-of" }, ...[list(t("Rows it votes on"), one.examples), list(t("Trusted rows it is wrong on"), one.mistakes)].filter(Boolean))];
}

/** The part of the page that makes rules; `follow` shows the intake after rules were kept. */
export function startRules({ path, intake, follow }) {
  const box = $("#rules"), form = $("#rule"), told = $("#rule-told"), live = $("#rule-live");
  let timer, turn = 0, waiting = null;

  const field = (name) => form.elements[name];
  const content = (roles) => Object.entries(intake().preview?.content ?? {}).filter(([, role]) => roles.includes(role)).map(([name]) => name);

  function draft() {
    const kind = field("kind").value, column = field("column").value, rule = { name: field("name").value.trim(), kind, column };
    if (kind !== "model") rule.label = field("label").value;
    if (kind === "keyword") rule.words = words(field("words").value);
    if (kind === "regex") rule.pattern = field("pattern").value;
    if (kind === "threshold") rule[field("bound").value] = field("number").value === "" ? null : Number(field("number").value);
    if (kind === "threshold" && rule[field("bound").value] === null) return null;
    if ((kind === "keyword" && !rule.words.length) || (kind === "regex" && !rule.pattern)) return null;
    rule.name ||= usual(rule);
    return rule;
  }

  /** A name that no other rule and no source has. */
  function usual(rule) {
    const what = rule.kind === "keyword" ? rule.words[0] : rule.kind === "regex" ? rule.pattern.slice(0, 40) : said(rule);
    const base = rule.kind === "model" ? `rule: ${rule.column}` : `${what} → ${rule.label}`;
    const taken = new Set([...(intake().preview?.sources ?? []), ...intake().rules.map((one) => one.name)]);
    let name = base;
    for (let k = 2; taken.has(name); k += 1) name = `${base} (${k})`;
    return name;
  }

  function arrange() {
    const kind = field("kind").value;
    for (const part of form.querySelectorAll("[data-for]")) part.hidden = !part.dataset.for.split(" ").includes(kind);
    const wanted = kind === "threshold" ? ["feature", "shown"] : kind === "model" ? ["feature", "shown"] : ["text", "shown", "feature"];
    options(field("column"), content(wanted));
    options(field("label"), intake().preview?.classes ?? []);
  }

  function options(select, names) {
    const before = select.value;
    select.replaceChildren(...names.map((name) => el("option", { value: name, selected: name === before }, name)));
  }

  async function tryOut() {
    const rule = draft(), mine = (turn += 1);
    $("button[type=submit]", form).disabled = !rule;
    if (!rule) { live.replaceChildren(); told.textContent = ""; return; }
    try {
      const found = await call("POST", path(intake().id, "/rules"), { rules: [...intake().rules, rule] });
      if (mine !== turn) return;
      told.textContent = "";
      show(found.rules.at(-1), found);
    } catch (problem) {
      if (mine !== turn) return;
      told.textContent = problem.message;
      told.className = "told bad";
      live.replaceChildren();
    }
  }

  function show(one, all) {
    if (one.problem) { told.textContent = one.problem; told.className = "told bad"; live.replaceChildren(); return; }
    live.replaceChildren(...factsOf(one, all));
  }

  async function keep(rules) {
    told.textContent = "";
    try {
      await follow(await call("PUT", path(intake().id, "/rules"), { rules }));
      return true;
    } catch (problem) {
      told.textContent = problem.message;
      told.className = "told bad";
      return false;
    }
  }

  form.addEventListener("input", () => { arrange(); clearTimeout(timer); timer = setTimeout(tryOut, 250); });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const rule = draft();
    if (!rule || !(await keep([...intake().rules, rule]))) return;
    for (const name of ["words", "pattern", "number", "name"]) field(name).value = "";
    live.replaceChildren();
    field(rule.kind === "regex" ? "pattern" : rule.kind === "threshold" ? "number" : "words").focus();
  });

  /* Suggestions */

  const suggestion = $("#suggestion");
  let suggested = null;

  async function suggest(ask) {
    const buttons = suggestion.querySelectorAll("button");
    for (const button of buttons) button.disabled = true;
    if (!suggested) suggestion.replaceChildren(el("p", { class: "soft" }, t("Looking for rules…")));
    suggestion.hidden = false;
    try {
      suggested = await ask();
      propose(suggested);
    } catch (problem) {
      suggested = null;
      suggestion.replaceChildren(el("p", { class: problem.code === "no_rules" ? "soft" : "told bad" }, problem.message));
    }
  }

  function propose({ rule, matched, coverage, new: fresh, conflicts, trusted_matched, trusted_right, texts, answered }) {
    const [word] = rule.words;
    const facts = [t("It votes on {n} rows ({share}).", { n: number(matched), share: percent(coverage) })];
    if (fresh < matched) facts.push(t("On {n} of these no rule that you found useful votes.", { n: number(fresh) }));
    if (conflicts) facts.push(t("On {n} of these it differs from such a rule.", { n: number(conflicts) }));
    facts.push(trusted_matched ? t("On trusted rows it is right on {n} of {all}.", { n: trusted_right, all: trusted_matched }) : t("No trusted row has it."));
    const answers = [[t("Useful"), true], [t("Not useful"), false], [t("Don’t know"), null]].map(([title, useful]) =>
      el("button", { class: "button", type: "button", onclick: () => answer(rule, useful) }, title));
    suggestion.replaceChildren(
      el("p", {}, ...parts(t("If {column} has “{word}”, vote for {label}: is that useful, right clearly more often than not?"), { column: el("b", {}, rule.column), word: el("mark", {}, word), label: el("b", {}, rule.label) })),
      el("p", { class: "soft small" }, facts.join(" ")),
      el("ul", { class: "near" }, ...texts.map((text) => marked({ text, span: place(text, word), item: "", truth: null }))),
      el("div", { class: "row" }, ...answers, el("span", { class: "soft small" }, answered ? t("{n} answered", { n: answered }) : "")));
    answers[0].focus({ preventScroll: true });
  }

  /** Where a word is in a text; null if it cannot be found as it is written. */
  function place(text, word) {
    const at = text.toLowerCase().indexOf(word);
    return at < 0 ? null : [at, at + word.length];
  }

  async function answer(rule, useful) {
    await suggest(() => call("POST", path(intake().id, "/suggestion"), { column: rule.column, word: rule.words[0], label: rule.label, useful }));
    if (useful) await keep([...intake().rules, { ...rule, name: usual(rule) }]);
  }

  $("#suggest-start").addEventListener("click", () => {
    const [column] = content(["text"]);
    suggest(() => call("GET", path(intake().id, `/suggestion?column=${encodeURIComponent(column)}`)));
  });

  /** The kept rules with their figures. */
  async function table(rules) {
    const found = rules.length ? await call("POST", path(intake().id, "/rules"), { rules }) : { rules: [] };
    const head = [t("Rule"), t("Votes for"), t("Rows"), t("Differs on"), t("Right on trusted rows"), ""].map((word, k) => el("th", { scope: "col", class: k > 1 && k < 5 ? "right" : null }, word));
    const rows = found.rules.map((one, k) => el("tr", {}, el("th", { scope: "row" }, el("span", { title: one.name }, said(rules[k]))), el("td", {}, rules[k].label ?? "–"),
      el("td", { class: "right" }, `${number(one.n_votes)} (${percent(one.n_votes / Math.max(1, one.n_rows))})`), el("td", { class: "right" }, number(one.n_conflicts)), el("td", { class: "right" }, one.problem ?? accuracy(one)),
      el("td", {}, el("button", { class: "button little", type: "button", "aria-label": t("Remove the rule {name}", { name: one.name }), onclick: () => keep(rules.filter((_, j) => j !== k)) }, t("Remove")))));
    $("#rules-kept").hidden = !rules.length;
    $("#rules-table").replaceChildren(el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows));
  }

  return {
    show(now) {
      const usable = now.preview && Object.keys(now.preview.content).length > 0 && now.preview.classes.length > 1;
      box.hidden = !usable;
      if (!usable) return;
      if (now.rules.length) box.open = true;
      $("#rules-count").textContent = now.rules.length ? ` (${now.rules.length})` : "";
      $("#rules-file").href = path(now.id, "/rules.toml");
      $("#suggest").hidden = !content(["text"]).length;
      arrange();
      const key = JSON.stringify([now.id, now.rules, now.preview.n_train]);
      if (key !== waiting) { waiting = key; table(now.rules).catch((problem) => { told.textContent = problem.message; }); }
    },
  };
}
