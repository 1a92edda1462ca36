// The cards of a view of items: read page by page, and again when the campaign has changed, but not under somebody's hands.
import { call, campaignPath } from "./api.js";
import { $ } from "./dom.js";
import "./page.js";

export const list = $("main > ul.list"), campaign = list.dataset.campaign, classes = JSON.parse(list.dataset.classes);
let cursor = null, behind = false;

/**
 * Show a card of each entry of `address()`; `card(entry, first)` makes it. While `busy()`, which may begin during a request,
 * nothing is shown by itself. Returns what shows the first page again.
 */
export async function cards(address, card, busy) {
  async function load({ after = null, byItself = false } = {}) {
    behind = byItself && busy();
    if (behind) return;
    const page = await call("GET", campaignPath(campaign, `${address()}${after ? `&after=${encodeURIComponent(after)}` : ""}`));
    behind = byItself && busy();
    if (behind) return;
    const made = page.entries.map((one, k) => card(one, k === 0 && !after));
    if (after) list.append(...made);
    else list.replaceChildren(...made);
    cursor = page.next;
    $("#more").hidden = cursor === null;
    $("#nothing").hidden = list.children.length > 0;
  }

  const byItself = () => load({ byItself: true }).catch(() => null);
  $("#more button").addEventListener("click", () => load({ after: cursor }));
  document.addEventListener("renewed", byItself);
  list.addEventListener("focusout", ({ relatedTarget }) => { if (behind && !list.contains(relatedTarget)) byItself(); });
  await load();
  list.dataset.ready = "yes";
  return load;
}
