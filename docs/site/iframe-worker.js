// Search without a server: browsers start no workers from file://, so the worker's script runs in a hidden frame instead.
// The bundle of the theme knows this by the name IFrameWorker. Nothing is loaded from elsewhere.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = "<!doctype html>";
      this.inside = new Promise((ready, failed) => {
        frame.addEventListener("load", () => {
          const inside = frame.contentWindow;
          const loaded = (script) => new Promise((done, wrong) => {
            const node = inside.document.createElement("script");
            node.src = script;
            node.onload = () => done();
            node.onerror = () => wrong(new Error(`cannot load ${script}`));
            inside.document.body.append(node);
          });
          inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
          inside.importScripts = (...scripts) => scripts.reduce((before, script) => before.then(() => loaded(script)), Promise.resolve());
          loaded(String(address)).then(() => ready(inside), failed);
        }, { once: true });
      });
      document.documentElement.append(frame);
    }

    postMessage(data) {
      this.inside.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }

    terminate() {
      this.inside.then((inside) => inside.frameElement.remove());
    }
  };
}
