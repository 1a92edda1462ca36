// The lead reads and answers the threads of all items, the newest first.
import { campaign, cards, list } from "./cards.js";
import { $, $$, el } from "./dom.js";
import { itemLink, showItem } from "./item.js";
import { t } from "./texts.js";
import { threadBox } from "./thread.js";

function card(thread) {
  const content = el("div", { class: "item", tabindex: "0", "aria-label": t("Item {item}", { item: thread.item }) });
  showItem(content, thread);
  return el("li", { class: "card conflict", "data-item": thread.item },
    el("div", {}, el("h3", {}, `${t("Item")} `, itemLink(campaign, thread.item)), content), threadBox(campaign, thread, { lead: true }));
}

const load = await cards(() => `/threads?limit=20&resolved=${$("#closed").checked}`, card,
  () => $$("textarea", list).some((box) => box.value || box === document.activeElement));
$("#closed").addEventListener("change", () => load());
