"use strict";
// Shows times in the viewer's time zone, and fetches the live part of the page regularly and after each choice.

const EVERY_MS = 2000;
const SLOWEST_MS = 15000;
const news = document.getElementById("news");

// --- times ------------------------------------------------------------------------------------------------------------

function showTimes(root) {
  const today = new Date().toDateString();
  for (const element of root.querySelectorAll("time")) {
    const when = new Date(element.dateTime);
    const day = when.toDateString() === today ? {} : { day: "numeric", month: "short" };
    if (when.getFullYear() !== new Date().getFullYear()) day.year = "numeric";
    element.textContent = when.toLocaleString(undefined, { ...day, hour: "2-digit", minute: "2-digit" });
  }
}

// --- the live part -----------------------------------------------------------------------------------------------------

// Change `old` into `fresh` and keep its elements, so that focus, scrolling and open dialogs stay. Elements are matched
// by id, also if they have moved. What a script has put into an element with `data-keep` stays.
function morph(old, fresh) {
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  if (old.type === "checkbox") old.checked = fresh.checked; // once clicked, it no longer follows its attribute
  if (old.dataset.keep !== undefined) return;
  let place = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    const known = child.id ? [...old.children].find((each) => each.id === child.id) : undefined;
    const same = known ?? (place && !place.id && !child.id && place.nodeName === child.nodeName ? place : undefined);
    if (!same) {
      old.insertBefore(child, place);
      continue;
    }
    if (same === place) place = place.nextSibling;
    else old.insertBefore(same, place);
    if (same.nodeType === Node.ELEMENT_NODE) morph(same, child);
    else if (same.nodeValue !== child.nodeValue) same.nodeValue = child.nodeValue;
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

function follow(live) {
  let etag = null;
  let wait = EVERY_MS;
  let lost = false;
  let status = live.dataset.status;

  async function look() {
    const asked = location.href;
    const address = new URL(asked);
    address.searchParams.set("part", "live");
    const answer = await fetch(address, { headers: etag ? { "If-None-Match": etag } : {}, cache: "no-store" });
    if (answer.redirected) return location.reload(); // signed out
    if (answer.status === 304) return undefined;
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const text = await answer.text();
    if (location.href !== asked) return undefined; // the viewer has chosen something else meanwhile
    etag = answer.headers.get("ETag");
    const fresh = new DOMParser().parseFromString(text, "text/html").querySelector("[data-live]");
    showTimes(fresh);
    const ends = [...live.querySelectorAll("[data-follow]")].filter(isAtEnd);
    morph(live, fresh);
    for (const log of ends) toEnd(log);
    document.dispatchEvent(new Event("sweeps:live"));
    if (live.dataset.status !== status) say(`The ${live.dataset.what ?? "sweep"} is ${(status = live.dataset.status)}.`, 6000);
    return undefined;
  }

  async function again() {
    if (!document.hidden) {
      try {
        await look();
        if (lost) say("Connected again.", 3000);
        lost = false;
        wait = EVERY_MS;
      } catch {
        lost = true;
        wait = Math.min(2 * wait, SLOWEST_MS);
        say("The service does not answer: reconnecting…");
      }
    }
    setTimeout(again, wait);
  }
  setTimeout(again, wait);
  return look;
}

// A log is followed unless the viewer has scrolled up in it.
const isAtEnd = (log) => log.scrollHeight - log.scrollTop - log.clientHeight < 30;
const toEnd = (log) => (log.scrollTop = log.scrollHeight);

// --- choices -----------------------------------------------------------------------------------------------------------

// Fields of a form with `data-choices` and links with `data-choice` change the page's address, and the live part is
// fetched for it at once: the page stays where it is. Without this script they load the page.
function choose(address) {
  history.replaceState(null, "", address);
  look().catch(() => location.assign(address));
}

document.addEventListener("change", ({ target }) => {
  const form = target.form;
  if (!look || form?.dataset.choices === undefined) return;
  const chosen = [...new FormData(form)].filter(([, value]) => value !== "");
  choose(`${location.pathname}?${new URLSearchParams(chosen)}`);
});

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[data-choice]");
  if (!look || !link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  choose(link.href);
});

let silence = 0;
function say(text, forMs) {
  clearTimeout(silence);
  if (news.textContent !== text) news.textContent = text;
  if (forMs) silence = setTimeout(() => (news.textContent = ""), forMs);
}

showTimes(document);
const live = document.querySelector("[data-live]");
const look = live ? follow(live) : null;
for (const log of document.querySelectorAll("[data-follow]")) toEnd(log);
