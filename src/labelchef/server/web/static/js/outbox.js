// Requests that wait for the server: sent in order, one at a time, and repeated until acknowledged.
import { call, sleep } from "./api.js";

export class Outbox {
  /** `report(state)` is told 'saving', 'saved' or 'retrying'; `answered(answer, entry)` and `refused(problem, entry)` what came. */
  constructor({ report, answered, refused }) {
    this.entries = [];
    this.report = report;
    this.answered = answered;
    this.refused = refused;
    this.running = null;
    addEventListener("beforeunload", (event) => { if (this.entries.length) event.preventDefault(); });
  }

  get items() { return new Set(this.entries.map((entry) => entry.body.item)); }

  push(path, body) {
    this.entries.push({ path, body });
    this.running ??= this.send().finally(() => { this.running = null; });
  }

  /** Resolves when everything is acknowledged. */
  async idle() { while (this.running) await this.running; }

  async send() {
    let pause = 400;
    while (this.entries.length) {
      const entry = this.entries[0];
      this.report("saving");
      try {
        const answer = await call("POST", entry.path, entry.body, { keepalive: true });
        pause = 400;
        this.entries.shift();
        this.answered(answer, entry);
      } catch (problem) {
        if (problem.status !== 0 && problem.status !== 429 && problem.status < 500) {
          this.entries.shift();
          this.refused(problem, entry);
          continue;
        }
        this.report("retrying");
        await sleep(pause);
        pause = Math.min(pause * 2, 10000);
      }
    }
    this.report("saved");
  }
}
