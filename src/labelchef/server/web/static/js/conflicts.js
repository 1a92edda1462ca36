// Conflicts: the class keys resolve the first item of the list.
import { call, campaignPath } from "./api.js";
import { campaign, cards, classes, list } from "./cards.js";
import { fitNames, nameOf } from "./classes.js";
import { $, $$, el, toast, typing } from "./dom.js";
import { itemLink, showItem } from "./item.js";
import { classKeys, CodeReader } from "./keys.js";
import { renew } from "./page.js";
import { t } from "./texts.js";

const codes = new CodeReader(classes);

const AWAITS = {
  count: t("The votes tie. When the batch is complete, one more person is asked; if nobody is left, you."),
  further: t("The votes tie, and one more person is asked."),
  asked: t("It is being asked again."),
  again: t("It is asked again after the items that were asked less often."),
  batch: t("The imported votes tie: they wait until a batch asks the item."),
  lead: t("It is not asked any more: it waits for your decision."),
};

function card(conflict, first) {
  const keys = classKeys(classes);
  const box = el("div", { class: "item", tabindex: "0", "aria-label": t("Item {item}", { item: conflict.item }) });
  showItem(box, conflict);
  const votes = conflict.votes.map((vote) => el("li", {},
    el("span", {}, vote.person, vote.note ? el("small", { class: "soft" }, ` “${vote.note}”`) : null),
    el("b", {}, vote.label === null ? t("ambiguous") : classes[vote.label])));
  const buttons = classes.map((name, position) => el("button", {
    type: "button", title: name, class: position === conflict.suggestion ? "class suggested" : "class", "data-position": position,
    onclick: (event) => resolve(conflict.item, position, event.currentTarget.closest("li.card")),
  }, first && keys[position] ? el("kbd", { "aria-hidden": true }, keys[position]) : null, el("span", {}, nameOf(name))));
  const choices = el("div", { class: "classes" }, ...buttons);
  fitNames(choices, classes);
  return el("li", { class: "card conflict", "data-key": conflict.item },
    el("div", {}, el("h3", {}, `${t("Item")} `, itemLink(campaign, conflict.item), conflict.awaits === "batch" ? "" : ` · ${t("round {n}", { n: conflict.round })}`), el("p", { class: "soft small awaits" }, AWAITS[conflict.awaits]), box),
    el("div", {}, el("h3", {}, t("Votes")), el("ul", { class: "votes" }, ...votes),
      conflict.suggestion === null ? null : el("p", { class: "soft small" }, t("labelchef suggests {label}.", { label: classes[conflict.suggestion] })),
      el("h3", {}, t("Decide")), choices));
}

async function resolve(item, label, box) {
  for (const button of $$("button", box)) button.disabled = true;
  try {
    await call("POST", campaignPath(campaign, "/decisions"), { item, label, seen: null });
    toast(t("Decided. The model follows with the next round."));
    await load();
    renew();
  } catch (problem) {
    toast(problem.message, { bad: true });
    for (const button of $$("button", box)) button.disabled = false;
    if (problem.code === "changed") await load();
  }
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || typing(event)) return;
  const position = codes.press(event.key);
  if (position === -1) event.preventDefault();
  const first = $("li.card", list);
  const button = position !== null && position >= 0 && first ? $(`button[data-position="${position}"]`, first) : null;
  if (button && !button.disabled) { event.preventDefault(); button.click(); }
});

const load = await cards(() => "/conflicts?limit=50", card, () => list.contains(document.activeElement));
