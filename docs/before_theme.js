// Runs before the theme's script, for two things that it does and that do not work everywhere.

// The search runs in a Worker, which browsers refuse for pages that are opened from a disk: there it runs in a frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = data => setTimeout(() => this.answer(structuredClone(data)));
      const script = inside.document.createElement("script");
      script.src = new URL(address, location);
      this.loaded = new Promise(done => (script.onload = done));
      inside.document.body.append(script);
    }
    answer(data) {
      const event = new MessageEvent("message", { data });
      this.onmessage?.(event);
      this.dispatchEvent(event);
    }
    postMessage(data) {
      const copy = structuredClone(data);
      this.loaded.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data: copy })));
    }
    terminate() {
      this.frame.remove();
    }
  };
}

// The search's style is an element within the page, which the service's Content-Security-Policy forbids; the same text as
// a style sheet made by a script is allowed.
const append = ShadowRoot.prototype.appendChild;
ShadowRoot.prototype.appendChild = function (node) {
  if (!(node instanceof HTMLStyleElement)) return append.call(this, node);
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(node.textContent);
  this.adoptedStyleSheets = [...this.adoptedStyleSheets, sheet];
  return node;
};
