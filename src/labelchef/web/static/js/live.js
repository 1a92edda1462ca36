// Watch for changes by a long poll: one at a time, and none while the tab is hidden.
import { call, campaignPath } from "./api.js";

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const visible = () => new Promise((done) => {
  if (!document.hidden) return done();
  document.addEventListener("visibilitychange", () => done(), { once: true });
});

/** Call `changed(version)` whenever the campaign changes, until the signal aborts. */
export async function watch(campaign, changed, { since = null, signal } = {}) {
  let version = since;
  let pause = 500;
  while (!signal?.aborted) {
    await visible();
    try {
      const query = new URLSearchParams(version === null ? {} : { since: version, timeout: "25" });
      const answer = await call("GET", campaignPath(campaign, `/changes?${query}`), undefined, { signal });
      pause = 500;
      if (answer.version !== version) {
        const first = version === null;
        version = answer.version;
        if (!first) await changed(version);
      }
    } catch (error) {
      if (signal?.aborted || error.status === 401 || error.status === 404) return;
      await sleep(pause);
      pause = Math.min(pause * 2, 15000);
    }
  }
}
