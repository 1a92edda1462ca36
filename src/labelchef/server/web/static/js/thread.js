// What people said of an item, and a box to answer.
import { call, campaignPath } from "./api.js";
import { $, el, toast } from "./dom.js";
import { t, when } from "./texts.js";

const LONGEST = 2000;
let boxes = 0;

export const threadPath = (campaign, item) => campaignPath(campaign, `/threads/${encodeURIComponent(item)}`);

/** A box with a thread; leads may close it and hide comments. `changed(thread)` is told what came of a change. */
export function threadBox(campaign, thread, { lead, changed = () => {} }) {
  const id = `say-${++boxes}`;
  const list = el("ol", { class: "comments" });
  const state = el("p", { class: "soft small" });
  const text = el("textarea", { id, rows: "2", maxlength: String(LONGEST), required: true });
  const close = lead ? el("button", { class: "button little", type: "button", onclick: () => act("PATCH", threadPath(campaign, now.item), { resolved: !now.resolved }) }) : null;
  const form = el("form", { class: "say" },
    el("label", { for: id }, t("Your comment")), text,
    el("div", { class: "row" }, el("button", { class: "button main little", type: "submit" }, t("Send")), close), el("p", { class: "soft small hint" }, t("Ctrl+Enter sends. Everybody who gets this item reads it.")));
  let now = thread;

  function draw(found) {
    now = found;
    list.replaceChildren(...found.comments.map(comment));
    list.hidden = !found.comments.length;
    state.textContent = found.comments.length ? (found.resolved ? t("Closed by a lead; a new comment opens it again.") : "") : t("Nobody has said anything of this item yet.");
    state.hidden = !state.textContent;
    if (close) { close.textContent = found.resolved ? t("Open again") : t("Close the thread"); close.hidden = !found.comments.length; }
  }

  function comment(one) {
    const hide = lead && one.id
      ? el("button", { class: "quiet small", type: "button", onclick: () => act("PATCH", campaignPath(campaign, `/comments/${encodeURIComponent(one.id)}`), { hidden: !one.hidden }) }, one.hidden ? t("Show") : t("Hide"))
      : null;
    return el("li", { class: [one.mine ? "mine" : "", one.hidden ? "hidden-one" : ""].join(" ").trim() },
      el("p", { class: "by small" }, el("b", {}, one.person), el("time", { datetime: one.at, class: "soft" }, when(one.at)),
        one.note ? el("span", { class: "badge" }, t("note with a vote")) : null, one.hidden ? el("span", { class: "badge" }, t("hidden")) : null, hide),
      el("p", { class: "said", dir: "auto" }, one.hidden && !one.text ? t("A lead has hidden this comment.") : one.text));
  }

  async function act(method, path, body) {
    try {
      const found = await call(method, path, body);
      draw(found);
      changed(found);
      return true;
    } catch (problem) {
      toast(problem.message, { bad: true, seconds: 6 });
      return false;
    }
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const send = $("button[type=submit]", form);
    if (!text.value.trim() || send.disabled) return;
    send.disabled = true;
    if (await act("POST", threadPath(campaign, now.item), { text: text.value })) text.value = "";
    send.disabled = false;
    list.lastElementChild?.scrollIntoView({ block: "nearest" });
  });
  text.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit(); });
  draw(thread);
  return el("div", { class: "thread" }, list, state, form);
}
