"use strict";
// Draws the figures of a page with Plotly when they come near the screen, and again when the page's live part, the
// viewer's choices or the colour scheme have changed.

(() => {
  const library = document.currentScript.dataset.plotly;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isTouched = matchMedia("(pointer: coarse)").matches;
  const shown = new Map(); // element of a figure -> what it shows
  const AGAIN_MS = 5000; // until a figure that could not be fetched is asked for again

  // The page's policy forbids style attributes and style elements, of which Plotly uses a few: the attributes are set
  // through the CSSOM, which is allowed, and the elements are in figures.css as far as we need them.
  const setAttribute = Element.prototype.setAttribute;
  Element.prototype.setAttribute = function (name, value) {
    if (name === "style") this.style.cssText = value;
    else setAttribute.call(this, name, value);
  };
  const append = document.head.appendChild;
  document.head.appendChild = (node) => (node.nodeName === "STYLE" ? node : append.call(document.head, node));

  let loading;
  function load() {
    loading ??= new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = library;
      script.onload = resolve;
      script.onerror = () => {
        loading = undefined; // so that the next figure asks again
        reject(new Error("the library of the figures could not be loaded"));
      };
      document.head.append(script);
    });
    return loading;
  }

  // --- one figure ---------------------------------------------------------------------------------------------------

  async function refresh(target) {
    const state = shown.get(target) ?? { chosen: 0 };
    shown.set(target, state);
    if (state.busy) return;
    state.busy = true;
    const asked = target.dataset.figure;
    if (!state.text) target.querySelector(".figure-note").textContent = "Loading…";
    try {
      const headers = state.address === asked && state.etag ? { "If-None-Match": state.etag } : {};
      const answer = await fetch(asked, { headers, cache: "no-store" });
      if (answer.status !== 304) {
        if (!answer.ok) throw new Error(answer.status === 429 ? "The service is busy; trying again." : `status ${answer.status}`);
        Object.assign(state, { address: asked, etag: answer.headers.get("ETag"), text: await answer.text() });
        await load();
        await draw(target, state);
      }
    } catch (error) {
      state.etag = null; // what was fetched may not have been drawn: ask for all of it again
      if (!state.text) target.querySelector(".figure-note").textContent = `The figure cannot be shown: ${error.message}`;
      clearTimeout(state.again);
      state.again = setTimeout(() => target.isConnected && refresh(target), AGAIN_MS);
    } finally {
      state.busy = false;
    }
    if (asked !== target.dataset.figure) await refresh(target); // chosen meanwhile
  }

  async function draw(target, state) {
    const light = JSON.parse(state.text);
    const content = dark.matches ? JSON.parse(state.text.replace(/"#[0-9a-f]{6}"/g, (colour) => JSON.stringify(light.dark[JSON.parse(colour)] ?? JSON.parse(colour)))) : light;
    target.querySelector(".figure-note").textContent = content.text;
    const layout = [target.dataset.title, content.layout, ...content.figures.map((each) => each.label)].join("\n");
    const plots = target.querySelector(".plots");
    if (state.layout !== layout) build(target, plots, content, state);
    state.layout = layout;
    state.chosen = Math.min(state.chosen, Math.max(0, content.figures.length - 1));
    for (const [index, each] of content.figures.entries()) {
      const isShown = content.layout === "grid" || index === state.chosen;
      plots.children[index].hidden = !isShown;
      if (isShown) await plot(plots.children[index].querySelector(".plot"), each, content, state.address);
    }
  }

  function build(target, plots, content, state) {
    for (const old of plots.querySelectorAll(".js-plotly-plot")) Plotly.purge(old);
    plots.className = `plots ${content.layout}`;
    plots.replaceChildren(
      ...content.figures.map((each) => {
        const frame = document.createElement("figure");
        const box = document.createElement("div");
        box.className = "plot";
        box.setAttribute("role", "img");
        box.setAttribute("aria-label", [target.dataset.title, each.label].filter(Boolean).join(": "));
        if (content.layout === "grid") {
          const caption = document.createElement("figcaption");
          caption.textContent = caption.title = each.label;
          frame.append(caption);
        }
        frame.append(box);
        frame.setAttribute("aria-label", box.getAttribute("aria-label"));
        for (const each of [frame, box]) sizes.observe(each);
        return frame;
      }),
    );
    const tabs = target.querySelector(".figure-tabs");
    const several = content.layout === "choice" && content.figures.length > 1;
    tabs.replaceChildren(
      ...(several ? content.figures : []).map((each, index) => {
        const button = document.createElement("button");
        button.type = "button";
        button.textContent = each.label;
        button.setAttribute("aria-pressed", String(index === state.chosen));
        button.addEventListener("click", () => {
          state.chosen = index;
          for (const other of tabs.children) other.setAttribute("aria-pressed", String(other === button));
          draw(target, state);
        });
        return button;
      }),
    );
  }

  // A figure that is wider than the screen can be scrolled by keyboard, too.
  const sizes = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const frame = target.closest("figure");
      if (frame.scrollWidth > frame.clientWidth) frame.tabIndex = 0;
      else frame.removeAttribute("tabindex");
    }
  });

  async function plot(box, each, content, address) {
    const { data, layout } = each.figure;
    const isNew = !box.classList.contains("js-plotly-plot");
    box.style.height = `${each.height}px`;
    box.style.minWidth = `${each.width}px`;
    const clear = "rgba(0,0,0,0)";
    Object.assign(layout, { paper_bgcolor: clear, plot_bgcolor: clear, uirevision: address });
    if (isTouched) layout.dragmode = false; // a finger scrolls the page
    await Plotly.react(box, data, layout, { responsive: true, displayModeBar: false });
    if (isNew && !isTouched) box.on("plotly_click", (event) => open(event.points[0].customdata, content.leads_to));
  }

  // A point leads to its trial, and a night to its sweep.
  function open(customdata, leadsTo) {
    const text = String(customdata ?? "");
    const name = leadsTo.endsWith("/trials/") ? /^(?:trial )?((?:s\d+-)?\d+(?:r\d+)?)(?:,|$)/.exec(text)?.[1] : text;
    if (name) location.assign(leadsTo + encodeURIComponent(name));
  }

  // --- all figures --------------------------------------------------------------------------------------------------

  const near = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) {
        target.isNear = isIntersecting;
        if (isIntersecting) refresh(target);
      }
    },
    { rootMargin: "300px" },
  );

  function find() {
    for (const target of shown.keys()) if (!target.isConnected) shown.delete(target);
    for (const target of document.querySelectorAll("[data-figure]")) {
      if (target.isNear === undefined) near.observe(target);
      else if (target.isNear) refresh(target);
    }
  }

  find();
  document.addEventListener("sweeps:live", find);
  dark.addEventListener("change", () => {
    for (const [target, state] of shown) if (state.text && target.isNear) draw(target, state);
  });
})();
