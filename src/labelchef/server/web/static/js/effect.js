// What other sources would change: computed by the server before it is applied, with progress, cancel and the figures.
import { call, campaignPath, sleep } from "./api.js";
import { el, scroll } from "./dom.js";
import { share, signed } from "./intervals.js";
import { itemPath } from "./links.js";
import { t } from "./texts.js";

const EVERY = 700;
const METRICS = { f1_macro: t("macro F1"), accuracy: t("accuracy"), f1: "F1", loss: t("loss") };
let turn = 0;

/** Show the effect of a proposal { muted, rules } in `box`, and a button that applies it. */
export async function showEffect(box, campaign, metric, proposal, { title, verb, applied }) {
  const mine = (turn += 1), path = campaignPath(campaign, "/sources/effect"), stage = el("span", { role: "status" }, t("beginning"));
  const cancel = el("button", { class: "button", type: "button", onclick: async () => { cancel.disabled = true; await call("DELETE", path).catch(() => null); } }, t("Cancel"));
  box.replaceChildren(el("h3", {}, title), el("progress", { "aria-label": t("Computing the effect") }), el("div", { class: "row" }, stage, cancel));
  try {
    let found = await call("POST", path, proposal);
    while (found.state === "running") {
      stage.textContent = t("{stage}, {n} s", { stage: found.stage, n: Math.round(found.seconds) });
      await sleep(EVERY);
      if (mine !== turn) return;
      found = await call("GET", path);
    }
    if (mine !== turn) return;
    if (found.state === "cancelled") return box.replaceChildren(el("p", { class: "soft" }, t("Cancelled; nothing was changed.")));
    if (found.state === "failed") throw new Error(found.problem);
    box.replaceChildren(el("h3", {}, title), ...result(found, campaign, metric), apply(box, campaign, proposal, verb, applied));
    box.scrollIntoView({ block: "nearest" });
  } catch (problem) {
    if (mine === turn) box.replaceChildren(el("p", { class: "told bad", role: "alert" }, problem.message));
  }
}

function apply(box, campaign, proposal, verb, applied) {
  const told = el("p", { class: "told", role: "status" });
  const button = el("button", { class: "button main", type: "button", onclick: async () => {
    button.disabled = true;
    told.textContent = t("Applying…");
    try {
      await call("POST", campaignPath(campaign, "/sources/apply"), proposal);
      applied();
    } catch (problem) {
      told.textContent = problem.message;
      told.className = "told bad";
      button.disabled = false;
    }
  } }, verb);
  const leave = el("button", { class: "button", type: "button", onclick: () => { turn += 1; box.replaceChildren(); } }, t("Leave it as it is"));
  return el("div", { class: "stack" }, el("p", { class: "soft small" }, t("It holds from the next model on: the one after the open batch, or, if no batch is out, one that is made at once. It is in the ledger, and can be taken back.")), el("div", { class: "row" }, button, leave), told);
}

/** The figures, as nodes. */
function result({ effect, shown, seconds }, campaign, metric) {
  const parts = [];
  for (const [split, gains] of Object.entries(effect.gains)) {
    const baseline = effect.baselines[split]?.trusted_only;
    const names = [...new Set([metric, "accuracy", "loss"])].filter((name) => gains[name]);
    const rows = names.map((name) => {
      const one = gains[name], exact = !effect.kept[split]; // figures of different source models are not equally exact: no verdict
      const better = exact && (name === "loss" ? one.high < 0 : one.low > 0), worse = exact && (name === "loss" ? one.low > 0 : one.high < 0);
      return el("tr", {}, el("th", { scope: "row" }, METRICS[name] ?? name), number(one.before), number(one.after),
        el("td", { class: `right ${better ? "effect-better" : worse ? "effect-worse" : ""}` }, `${signed(one.after - one.before, 3)} (${signed(one.low, 3)} ${t("to")} ${signed(one.high, 3)})`), number(baseline?.[name] ?? null));
    });
    const heads = [t("Metric"), t("Now"), t("Then"), t("Difference, 95 % interval"), t("Trusted samples alone")].map((word, k) => el("th", { scope: "col", class: k ? "right" : null }, word));
    const first = gains[metric] ?? Object.values(gains)[0];
    const about = split === "test" ? t("on {n} test samples", { n: first.samples }) : first.cross_fitted ? t("on {n} trusted samples, each judged by a model without it", { n: first.samples }) : t("on {n} trusted samples that are held out", { n: first.samples });
    parts.push(scroll(about, el("table", {}, el("caption", { class: "unseen" }, about), el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...rows))));
    const kept = effect.kept[split]?.[names[0]], loss = effect.kept[split]?.loss, told = (one) => `${signed(one.after - one.before, 3)} (${signed(one.low, 3)} ${t("to")} ${signed(one.high, 3)})`;
    if (kept && loss) parts.push(el("p", { class: "small" }, t("The choice of source model and strengths changes too, and figures of different source models are not equally exact. With the present choice, the differences are: {metric} {a}, loss {b}.", { metric: METRICS[names[0]] ?? names[0], a: kept, b: loss })));
    const doubt = first.doubt ? ` ${t("Too few samples to judge ({why}).", { why: first.doubt })}` : "";
    parts.push(el("p", { class: "soft small" }, `${t("Measured {where}; the interval is of the difference on the same samples.", { where: about })}${doubt}`));
  }
  parts.push(el("p", {}, t("Of {n} samples without an answer, {believed} would be believed to be of another class, and the model would predict another class of {predicted}.", { n: effect.unanswered, believed: effect.believed, predicted: effect.predicted })));
  const use = effect.in_use_before === effect.in_use_after ? t("In use now and then: {what}.", { what: effect.in_use_before }) : t("In use now: {before}. Then: {after}.", { before: effect.in_use_before, after: effect.in_use_after });
  const closed = effect.closed_form === null ? "" : ` ${t("The closed form, which leaves the choice as it is, predicts a change of the loss of {change}.", { change: signed(effect.closed_form, 4) })}`;
  parts.push(el("p", { class: "soft small" }, `${use}${closed} ${t("Computed in {n} s.", { n: Math.round(seconds) })}`));
  if (shown.length) {
    const items = shown.map((one) => el("li", {}, picture(one), el("a", { class: "quote", href: itemPath(campaign, one.item), dir: "auto" }, words(one)), el("span", { class: "said" }, t("{before} ({p}) → {after} ({q})", { before: one.before, p: share(one.p_before), after: one.after, q: share(one.p_after) }))));
    parts.push(el("details", {}, el("summary", {}, t("Samples whose believed class would change, {n} of them", { n: shown.length })), el("ul", { class: "examples-list" }, ...items)));
  }
  return parts;
}

const number = (value) => el("td", { class: "right num" }, value === null ? "–" : value.toFixed(3));

/** The image of an item, small; null where it has none. */
export const picture = ({ content }) => (content.image ? el("img", { src: content.image, alt: "", loading: "lazy" }) : null);

/** What an item is called in a list. */
export const words = ({ item, content }) => content.text || Object.entries(content.fields).map(([name, value]) => `${name} ${value}`).join(", ") || item;
