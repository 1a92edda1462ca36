// The lead reads and answers the threads of all items, the newest first.
import { call, campaignPath } from "./api.js";
import { $, el } from "./dom.js";
import { showItem } from "./item.js";
import { watch } from "./live.js";
import { t } from "./texts.js";
import { threadBox } from "./thread.js";

const list = $("#threads");
const campaign = list.dataset.campaign;
let cursor = null;

function card(thread) {
  const content = el("div", { class: "item", tabindex: "0", "aria-label": t("Item {item}", { item: thread.item }) });
  showItem(content, thread);
  const address = `/c/${encodeURIComponent(campaign)}/lead/items/${encodeURIComponent(thread.item)}`;
  return el("li", { class: "card conflict", "data-item": thread.item },
    el("div", {}, el("h3", {}, el("a", { href: address }, t("Item {item}", { item: thread.item }))), content),
    threadBox(campaign, thread, { lead: true }));
}

const writing = () => [...list.querySelectorAll("textarea")].some((box) => box.value || box === document.activeElement);
let behind = false;

/** Show the threads; by itself, only while nobody writes, which may have begun while they were fetched. */
async function load(after = null, { byItself = false } = {}) {
  behind = byItself && writing();
  if (behind) return;
  const closed = $("#closed").checked;
  const page = await call("GET", campaignPath(campaign, `/threads?limit=20&resolved=${closed}${after ? `&after=${encodeURIComponent(after)}` : ""}`));
  behind = byItself && writing();
  if (behind) return;
  if (after) list.append(...page.entries.map(card));
  else list.replaceChildren(...page.entries.map(card));
  cursor = page.next;
  $("#more-threads").hidden = cursor === null;
  $("#no-threads").hidden = list.children.length > 0;
}

$("#closed").addEventListener("change", () => load());
$("#more-threads").addEventListener("click", () => load(cursor));
await load();
list.dataset.ready = "yes";
// What others say appears by itself, except while a comment is being written.
list.addEventListener("focusout", () => { if (behind) load(null, { byItself: true }).catch(() => null); });
watch(campaign, Number(list.dataset.version), () => load(null, { byItself: true }));
