// Quality of people: a plot and a table with intervals, and who gets what.
import { call, campaignPath } from "./api.js";
import { $, el, head, right, scroll, svg, toast } from "./dom.js";
import { t } from "./texts.js";

const root = $("#quality"), told = $("#quality-told"), body = $("#quality-body");
const campaign = root.dataset.campaign;
const percent = (value) => (value === null ? "–" : `${Math.round(100 * value)}\u202f%`);
const points = (value) => `${value < 0 ? "−" : "+"}${Math.abs(Math.round(100 * value))}`;

/** Who has answers and is not in the plot, and why. */
function notDrawn(found, people) {
  const left = found.people.filter((one) => (one.votes || one.gold_answered) && !people.includes(one)).map((one) => (one.compared ? t("{person} ({why}; {share} of {n} as decided)", { person: one.person, why: one.too_few, share: percent(one.agreement), n: one.compared }) : `${one.person} (${one.too_few})`));
  return left.length ? el("p", { id: "not-drawn" }, t("Not drawn, look at them in the table: {people}.", { people: left.join(", ") })) : null;
}

/** Accuracy of each person with its interval, gold alone as a thin line; one who guesses, and one who accepts all, as lines. */
function plot(found) {
  const people = found.people.filter((one) => one.accuracy || one.gold);
  if (!people.length) return el("div", { class: "stack" }, el("p", { class: "soft" }, t("There is nothing to draw yet: too few answers of everybody.")), notDrawn(found, people));
  const ends = people.flatMap((one) => [one.accuracy?.low, one.gold?.low]).filter((value) => value !== undefined);
  const low = Math.max(0, Math.floor(10 * Math.min(...ends, found.guessing, found.accepting ?? 1)) / 10);
  const whole = Math.min(Math.max(root.clientWidth - 40, 260), 720);
  const left = whole < 480 ? 84 : 130, width = whole - left - 24, row = 30, top = 34, bottom = top + row * people.length;
  const x = (value) => left + (width * (value - low)) / (1 - low);
  const said = people.map((one) => (one.accuracy ? t("{person}: {value}, {low} to {high}", { person: one.person, value: percent(one.accuracy.value), low: percent(one.accuracy.low), high: percent(one.accuracy.high) }) : `${one.person}: ${one.too_few}`));
  const drawn = svg("svg", { class: "plot", viewBox: `0 0 ${whole} ${bottom + 26}`, width: whole, role: "img", "aria-label": `${t("Accuracy of each person with its 95 % interval")}. ${said.join("; ")}` });
  const step = (1 - low) / 0.1 > width / 48 ? 0.2 : 0.1;
  for (let tick = 1; tick >= low - 0.001; tick -= step) {
    drawn.append(svg("line", { class: "axis", x1: x(tick), x2: x(tick), y1: top, y2: bottom }));
    drawn.append(svg("text", { class: "soft", x: x(tick), y: bottom + 16, "text-anchor": "middle" }, percent(tick)));
  }
  const lines = [["guess", found.guessing, t("guessing")], ["accept", found.accepting, t("always accepting")]].filter((one) => one[1] !== null);
  lines.forEach(([kind, value, word], k) => {
    drawn.append(svg("line", { class: kind, x1: x(value), x2: x(value), y1: top - 14 * (k % 2) - 4, y2: bottom }));
    const end = x(value) + 6.5 * word.length > whole;
    drawn.append(svg("text", { class: "soft", x: x(value) + (end ? -5 : 5), y: top - 14 * (k % 2) - 6, "text-anchor": end ? "end" : "start" }, word));
  });
  people.forEach((one, k) => {
    const y = top + row * (k + 0.5);
    const most = whole < 480 ? 11 : 18;
    const name = one.person.length > most ? `${one.person.slice(0, most - 1)}…` : one.person;
    drawn.append(svg("text", { x: left - 10, y: y + 4, "text-anchor": "end" }, name));
    if (one.accuracy) {
      drawn.append(svg("line", { class: "range", x1: x(one.accuracy.low), x2: x(one.accuracy.high), y1: y, y2: y }));
      drawn.append(svg("circle", { class: "dot", cx: x(one.accuracy.value), cy: y, r: 4.5 }));
    }
    if (one.gold) {
      drawn.append(svg("line", { class: "gold", x1: x(one.gold.low), x2: x(one.gold.high), y1: y + 9, y2: y + 9 }));
      drawn.append(svg("circle", { cx: x(one.gold.value), cy: y + 9, r: 2.5, fill: "currentColor" }));
    }
  });
  return el("figure", { class: "card" }, el("h2", {}, t("Accuracy with 95 % intervals")), drawn,
    notDrawn(found, people),
    el("figcaption", {}, t("Thick: estimated from all that is known. Thin: hidden gold alone. Dotted: one who guesses. Dashed: one who always accepts the suggestion, against the decisions.")));
}

const interval = (one) => el("span", {}, percent(one.value), el("small", { class: "soft num" }, t("{low} to {high}", { low: percent(one.low), high: percent(one.high) })));

function pull(one) {
  if (one.interval === null) return el("span", {}, "–");
  if (!one.told) return el("span", { class: "few" }, t("too few blind votes: {n}", { n: one.blind }));
  return el("span", {}, points(one.interval.value), el("small", { class: "soft num" }, t("{low} to {high}", { low: points(one.interval.low), high: points(one.interval.high) })));
}

function time(times) {
  if (times.median === null) return el("span", {}, "–");
  const left = times.left_out ? ` · ${t("{n} left out", { n: times.left_out })}` : "";
  return el("span", {}, `${times.median.toFixed(1)}\u202fs`, el("small", { class: "soft num" }, `${times.first.toFixed(1)}–${times.third.toFixed(1)}${left}`));
}

function matrix(title, counts, classes) {
  const used = classes.map((_, k) => k).filter((k) => counts[k].some(Boolean) || counts.some((line) => line[k]));
  if (!used.length) return null;
  const last = classes.length;
  const table = el("table", {}, head([t("Class"), ...used.map((k) => t("says {label}", { label: classes[k] })), t("ambiguous")]),
    el("tbody", {}, ...used.map((k) => el("tr", {}, el("th", { scope: "row" }, classes[k]), ...[...used, last].map((v) => right(String(counts[k][v])))))));
  return el("div", {}, el("h3", {}, title), scroll(title, table));
}

function rows(one, classes, k) {
  const inner = [matrix(t("Against the decisions"), one.confusion, classes), matrix(t("Against hidden gold"), one.gold_confusion, classes)].filter(Boolean);
  const more = el("tr", { id: `person-${k}`, hidden: true }, el("td", { colspan: "6" }, inner.length ? el("div", { class: "confusions" }, ...inner) : el("p", { class: "soft" }, t("No vote of theirs is decided yet."))));
  const button = el("button", { class: "quiet", type: "button", "aria-expanded": "false", "aria-controls": more.id, onclick: () => {
    more.hidden = !more.hidden;
    button.setAttribute("aria-expanded", `${!more.hidden}`);
  } }, one.person);
  const gold = one.gold_answered ? el("span", {}, t("{right} of {all}", { right: one.gold_right, all: one.gold_answered }), one.gold ? el("small", { class: "soft num" }, t("{low} to {high}", { low: percent(one.gold.low), high: percent(one.gold.high) })) : el("small", { class: "soft" }, t("too few"))) : el("span", {}, "–");
  const line = el("tr", {}, el("th", { scope: "row" }, button),
    right(one.accuracy ? interval(one.accuracy) : el("span", { class: "few" }, one.too_few || "–")), right(gold),
    right(percent(one.agreement), one.compared ? el("small", { class: "soft" }, t("of {n}", { n: one.compared })) : null), right(pull(one.pull)), right(time(one.times)));
  return [line, more];
}

function people(found) {
  if (!found.people.length) return el("p", { class: "soft" }, t("Nobody has voted yet."));
  const words = [t("Person"), t("Accuracy, estimated"), t("Hidden gold right"), t("As decided"), t("Pull of the suggestion"), t("Median seconds")];
  const table = el("table", { class: "quality" }, head(words), el("tbody", {}, ...found.people.flatMap((one, k) => rows(one, found.classes, k))));
  return el("section", { class: "stack" }, el("p", { class: "soft small" }, t("Click a name to see which classes are taken for which.")), scroll(t("What is known of the answers of each person"), table),
    el("p", { class: "soft small" }, found.pull.interval === null ? t("No item was drawn to be shown blind, so the pull of the suggestion is not known.")
      : found.pull.told ? t("Everybody together: a suggestion that is seen is followed {low} to {high} points more often than one that is not (95 %).", { low: points(found.pull.interval.low), high: points(found.pull.interval.high) })
        : t("Everybody together: too few blind votes ({n}) to tell the pull of the suggestion.", { n: found.pull.blind })));
}

/** A form for what a member gets. */
function dutyForm(one, duty, found, done) {
  const id = (part) => `duty-${part}-${one.person}`;
  const ticks = found.classes.map((name) => el("label", {}, el("input", { type: "checkbox", name: "class", value: name, checked: duty.classes.includes(name) }), name));
  const text = (part, word, value, list = null) => el("div", { class: "field" }, el("label", { for: id(part) }, word), el("input", { id: id(part), name: part, value, maxlength: "1000", list }));
  const names = el("datalist", { id: id("fields") }, ...found.fields.map((name) => el("option", { value: name })));
  const items = el("textarea", { id: id("items"), name: "items", rows: "2" });
  items.value = duty.items.join("\n");
  const message = el("p", { class: "told", role: "status" });
  const form = el("form", { class: "duty card", onsubmit: async (event) => {
    event.preventDefault();
    const value = (part) => form.elements[part].value.trim();
    const classes = [...form.querySelectorAll("input[name=class]:checked")].map((tick) => tick.value);
    const sent = { classes, field: value("field"), value: value("value"), prefix: value("prefix"), items: value("items").split("\n").map((key) => key.trim()).filter(Boolean) };
    try {
      await call("PUT", campaignPath(campaign, `/duties/${encodeURIComponent(one.person)}`), sent);
      toast(t("Saved. It holds for the items that are handed out from now on."));
      done();
    } catch (problem) {
      message.textContent = problem.message;
      message.className = "told bad";
    }
  } }, el("h3", {}, t("What {person} gets", { person: one.person })), el("p", { class: "soft small" }, t("All conditions must hold; nothing chosen is everything. When none of their items is left, they get items for which too few members are there.")),
    el("fieldset", {}, el("legend", {}, t("Classes, as believed when the item is selected")), ...ticks),
    el("div", { class: "fields" }, text("field", t("Field of the items"), duty.field, id("fields")), text("value", t("has the value"), duty.value), text("prefix", t("Ids begin with"), duty.prefix)), names,
    el("div", { class: "field" }, el("label", { for: id("items") }, t("Ids of items, one a line")), items), message,
    el("div", { class: "row" }, el("button", { class: "button main", type: "submit" }, t("Save")), el("button", { class: "button", type: "button", onclick: done }, t("Cancel"))));
  return form;
}

function duties(found, known) {
  const members = found.people.filter((one) => one.member);
  if (!members.length) return null;
  const place = el("div", {});
  const empty = { classes: [], field: "", value: "", prefix: "", items: [] };
  const lines = members.map((one) => el("tr", {}, el("th", { scope: "row" }, one.person), el("td", { class: "wrap" }, one.gets || t("everything")),
    el("td", { class: "right" }, el("button", { class: "button little", type: "button", "aria-label": t("Change what {person} gets", { person: one.person }), onclick: () => {
      place.replaceChildren(dutyForm(one, { ...empty, ...known[one.person] }, found, load));
      $("input, textarea", place).focus();
    } }, t("Change")))));
  return el("section", { class: "stack" }, el("h2", { id: "duties-title" }, t("Which items each member gets")),
    scroll(t("Which items each member gets"), el("table", {}, head([t("Member"), t("Gets"), el("span", { class: "unseen" }, t("Change"))], 2), el("tbody", {}, ...lines))), place);
}

async function load() {
  try {
    const [found, known] = await Promise.all([call("GET", campaignPath(campaign, "/quality")), call("GET", campaignPath(campaign, "/duties"))]);
    told.textContent = found.notes.join(" ");
    body.replaceChildren(...[plot(found), people(found), duties(found, known)].filter(Boolean));
  } catch (problem) {
    told.textContent = problem.message;
    told.className = "told bad";
  }
}

await load();
