// Beside the item on the Label page: guidelines, threads, and what is new.
import { call, campaignPath } from "./api.js";
import { $, el, toast } from "./dom.js";
import { showItem } from "./item.js";
import { fragment } from "./markup.js";
import { t, when } from "./texts.js";
import { threadBox, threadPath } from "./thread.js";

export class Guidance {
  /** `told(summaries)` gets class → description in a line, when they came or changed; `talked(thread)` a thread that changed. */
  constructor(campaign, { lead, told, talked }) {
    Object.assign(this, { campaign, lead, told, talked, version: -1, news: null, asked: 0, shown: 0 });
    $("#news").addEventListener("click", () => { if (this.news?.answers.length) this.openThread(this.news.answers[0].item); });
    for (const dialog of [$("#guide"), $("#thread")]) dialog.addEventListener("close", () => $("#item").focus({ preventScroll: true }));
  }

  /** Ask what is new; the guidelines are fetched when they changed. Of two answers, the later question's counts. */
  async refresh() {
    const turn = ++this.asked;
    const news = await call("GET", campaignPath(this.campaign, "/news"));
    if (turn < this.shown) return;
    this.shown = turn;
    this.news = news;
    if (news.guidelines !== this.version) await this.read();
    this.mark();
  }

  async read() {
    const found = await call("GET", campaignPath(this.campaign, "/guidelines"));
    this.version = found.version;
    this.seen = found.seen;
    $("#guide-text").replaceChildren(...fragment(found.html));
    const told = found.classes.filter((one) => one.text);
    $("#guide-classes").replaceChildren(...told.flatMap((one) => [el("dt", {}, one.name), el("dd", { class: "prose" }, ...fragment(one.html))]));
    $("#guide-classes-box").hidden = !told.length;
    $("#guide-empty").hidden = found.text !== "" || told.length > 0;
    $("#guide-when").textContent = found.changed_at
      ? t("Version {n}, changed by {who} on {date}", { n: found.version, who: found.changed_by, date: when(found.changed_at) })
      : "";
    this.told(new Map(found.classes.map((one) => [one.name, one.summary])));
  }

  mark() {
    const fresh = this.news.guidelines > this.news.seen;
    $("#guide-mark").hidden = !fresh;
    $("#guide-open").title = fresh ? t("The guidelines have changed since you looked") : "";
    const answers = this.news.answers.reduce((sum, one) => sum + one.count, 0);
    $("#news").hidden = answers === 0;
    $("#news").textContent = answers === 1 ? t("1 new answer") : t("{n} new answers", { n: answers });
  }

  async openGuide() {
    $("#guide").showModal();
    if (this.version < 0) await this.read().catch((problem) => toast(problem.message, { bad: true }));
    if (!this.news || this.news.guidelines <= this.news.seen) return;
    await call("PUT", campaignPath(this.campaign, "/seen"), { guidelines: this.version }).catch(() => null);
    this.news.seen = this.version;
    this.mark();
  }

  async openThread(item) {
    try {
      const thread = await call("GET", threadPath(this.campaign, item));
      $("#thread-title").textContent = t("Discussion of item {item}", { item });
      showItem($("#thread-item"), thread);
      $("#thread-box").replaceChildren(threadBox(this.campaign, thread, { lead: this.lead, changed: this.talked }));
      if (!$("#thread").open) $("#thread").showModal();
      $("#thread-box textarea").focus();
      const last = thread.comments.findLast((one) => one.id);
      if (last) await call("PUT", campaignPath(this.campaign, "/seen"), { item, comment: last.id }).catch(() => null); // in the archive nothing changes
      await this.refresh().catch(() => null);
    } catch (problem) { toast(problem.message, { bad: true }); }
  }
}
