// Watch for changes by a long poll: one at a time, and none while the tab is hidden.
import { call, campaignPath, sleep } from "./api.js";

const visible = () => new Promise((done) => {
  if (!document.hidden) return done();
  document.addEventListener("visibilitychange", () => done(), { once: true });
});

/** Call `changed(version)` whenever the campaign is not at `version` any more; again after a while, if that fails. */
export async function watch(campaign, version, changed) {
  let pause = 500;
  while (true) {
    await visible();
    try {
      const answer = await call("GET", campaignPath(campaign, `/changes?since=${version}&timeout=25`));
      if (answer.version !== version) await changed(answer.version);
      version = answer.version; // only now: a page that could not be renewed is still at the old one
      pause = 500;
    } catch (error) {
      if (error.status === 404) document.dispatchEvent(new Event("gone"));
      if (error.status === 401 || error.status === 404) return;
      await sleep(pause);
      pause = Math.min(pause * 2, 15000);
    }
  }
}
