// Seconds spent on an item. The clock stands while the tab is hidden, and from 60 s after the last key, click, touch or
// movement until the next one: a pause is not work.

const IDLE = 60_000;

export class Clock {
  constructor(now = () => performance.now()) {
    this.now = now;
    this.start();
  }

  /** Begin anew, with seconds that were spent before. */
  start(seconds = 0) {
    this.spent = 1000 * seconds;
    this.since = document.hidden ? null : this.now(); // null while it stands
    this.active = this.now();
  }

  seconds() {
    this.settle();
    return this.spent / 1000;
  }

  /** Add what has passed, at most up to 60 s after the last sign of life. */
  settle() {
    if (this.since === null) return;
    const now = this.now();
    const end = Math.min(now, this.active + IDLE);
    this.spent += Math.max(0, end - this.since);
    this.since = end < now ? null : now;
  }

  /** A sign of life. */
  touch() {
    this.settle();
    this.active = this.now();
    if (!document.hidden) this.since ??= this.active;
  }

  /** The tab was hidden or shown. */
  turned() {
    if (document.hidden) { this.settle(); this.since = null; } else this.touch();
  }
}

export const clock = new Clock();
for (const kind of ["keydown", "pointerdown", "pointermove", "wheel", "touchstart"]) {
  document.addEventListener(kind, () => clock.touch(), { passive: true, capture: true });
}
document.addEventListener("visibilitychange", () => clock.turned());
