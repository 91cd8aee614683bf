"use strict";
// Sends a form while a person fills it in, and takes from the answer what has changed: mistakes, hints, the preview.
// Elements with `data-swap` are replaced: always; "conf": when the config has changed; "valid": unless the form has
// mistakes, so that the last valid preview stays.

const PAUSE_MS = 800;
const BUSY_MS = 5000;
const SIGNED_OUT = "You are signed out. Sign in in another tab, then go on here: the form keeps what you have entered.";
const AWAY = "The service does not answer; the form is checked again when you change it.";

function previewOf(form) {
  const state = document.getElementById("preview-state");
  const shown = document.getElementById(form.dataset.preview);
  const conf = form.elements.namedItem("conf");
  const token = form.elements.namedItem("form_token");
  let lastConf = conf?.value;
  let timer = 0;
  let isAsking = false;
  let isOld = false;
  let isSending = false;
  let isSent = false;

  function later(ms = PAUSE_MS) {
    clearTimeout(timer);
    timer = setTimeout(ask, ms);
    shown.setAttribute("aria-busy", "true");
  }

  async function ask() {
    if (isAsking) {
      isOld = true;
      return;
    }
    isAsking = true;
    const body = new URLSearchParams(new FormData(form));
    body.set("then", "preview");
    try {
      const answer = await fetch(form.getAttribute("action"), { method: "POST", body });
      if (answer.redirected) state.textContent = SIGNED_OUT;
      else if (answer.status === 403 && (await isSignedIn()) && token.value !== body.get("form_token")) later(0);
      else if (answer.status === 429) later(BUSY_MS);
      else take(new DOMParser().parseFromString(await answer.text(), "text/html"), String(body.get("conf")));
    } catch {
      state.textContent = AWAY;
    }
    isAsking = false;
    if (isOld) {
      isOld = false;
      later(0);
    }
  }

  // Whether somebody is signed in. The form gets the token of the session, which may have begun after it was opened.
  async function isSignedIn() {
    const answer = await fetch(location.href);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    token.value = page.querySelector("form[data-preview] [name=form_token]")?.value ?? token.value;
    return !answer.redirected;
  }

  // Send the form only where the answer cannot be the page to sign in, on which all that was entered would be lost.
  async function send(event) {
    if (isSent) return;
    event.preventDefault();
    if (isSending) return; // the second click of a double one
    isSending = true;
    try {
      isSent = await isSignedIn();
      if (isSent) form.requestSubmit(event.submitter);
      else state.textContent = SIGNED_OUT;
    } catch {
      state.textContent = AWAY;
    }
    isSending = isSent; // also while the page is on its way; a form that comes back by "Back" can be sent again
    isSent = false;
    if (isSending) setTimeout(() => (isSending = false), BUSY_MS);
  }

  function take(fresh, askedConf) {
    shown.removeAttribute("aria-busy");
    if (!fresh.getElementById(shown.id)) {
      state.textContent = fresh.querySelector("main")?.innerText.trim() ?? "The service cannot check this now.";
      return;
    }
    const isOther = conf !== null && askedConf !== lastConf;
    lastConf = askedConf;
    for (const part of fresh.querySelectorAll("[data-swap]")) {
      const old = document.getElementById(part.id);
      if (!old || (part.dataset.swap === "conf" && !isOther)) continue;
      if (part.dataset.swap === "valid") old.classList.toggle("old", !("valid" in part.dataset));
      if (part.dataset.swap === "valid" && !("valid" in part.dataset)) continue;
      if (old.innerHTML !== part.innerHTML) swap(old, part);
    }
    for (const control of fresh.querySelectorAll("form [aria-describedby]")) {
      const old = document.getElementById(control.id);
      if (!old) continue;
      old.setAttribute("aria-describedby", control.getAttribute("aria-describedby"));
      if (control.hasAttribute("aria-invalid")) old.setAttribute("aria-invalid", "true");
      else old.removeAttribute("aria-invalid");
    }
    if (typeof showTimes === "function") showTimes(shown);
  }

  function swap(old, part) {
    const scrolled = [...old.querySelectorAll("pre")].map((each) => each.scrollTop);
    old.replaceChildren(...part.childNodes);
    old.querySelectorAll("pre").forEach((each, index) => (each.scrollTop = scrolled[index] ?? 0));
  }

  form.addEventListener("input", () => later());
  form.addEventListener("submit", send);
  form.addEventListener("change", (event) => {
    if (event.target !== conf) return;
    for (const select of form.querySelectorAll("select[name^='group:']")) select.value = ""; // options of another config
  });
  later(0);
}

const previewed = document.querySelector("form[data-preview]");
if (previewed) previewOf(previewed);
