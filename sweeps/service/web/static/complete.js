"use strict";
// Completes the keys and values of overrides in a text field, one of which is on each line: what the shells complete.
// Arrow keys choose, Enter or Tab takes the chosen one, Escape closes the list.

const WAIT_MS = 120;

function completionOf(field) {
  const list = document.createElement("ul");
  list.id = `${field.id}-completions`;
  list.className = "completions";
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Completions");
  list.hidden = true;
  const told = document.createElement("span");
  told.className = "unseen";
  told.setAttribute("aria-live", "polite");
  field.after(list, told);
  field.setAttribute("aria-autocomplete", "list");
  field.setAttribute("aria-haspopup", "listbox");
  field.setAttribute("aria-controls", list.id);

  let found = [];
  let chosen = -1;
  let timer = 0;
  let asked = 0;

  function typed() {
    const before = field.value.slice(0, field.selectionStart);
    return before.slice(before.lastIndexOf("\n") + 1).trimStart();
  }

  function close() {
    asked += 1;
    clearTimeout(timer);
    list.hidden = true;
    found = [];
    chosen = -1;
    field.removeAttribute("aria-activedescendant");
    told.textContent = "";
  }

  async function ask() {
    const text = typed();
    const rest = field.value.slice(field.selectionStart).split("\n", 1)[0].trim();
    if (rest || text.includes("(") || field.selectionStart !== field.selectionEnd) return close();
    const number = (asked += 1);
    const query = new URLSearchParams({ typed: text, conf: field.form.elements.namedItem("conf")?.value ?? "" });
    try {
      const answer = await fetch(`${field.dataset.complete}?${query}`);
      if (!answer.ok || number !== asked) return undefined;
      found = (await answer.json()).filter((each) => each.text !== text);
    } catch {
      found = [];
    }
    return number === asked ? show() : undefined;
  }

  function show() {
    if (!found.length || document.activeElement !== field) return close();
    list.replaceChildren(
      ...found.map((each, index) => {
        const item = document.createElement("li");
        item.id = `${list.id}-${index}`;
        item.setAttribute("role", "option");
        const word = document.createElement("code");
        word.textContent = each.text;
        const help = document.createElement("span");
        help.textContent = each.help;
        item.append(word, help);
        item.addEventListener("mousedown", (event) => event.preventDefault()); // the field keeps the focus
        item.addEventListener("click", () => take(index));
        return item;
      }),
    );
    const style = getComputedStyle(field);
    const line = field.value.slice(0, field.selectionStart).split("\n").length;
    const below = parseFloat(style.paddingTop) + line * parseFloat(style.lineHeight) - field.scrollTop + 4;
    list.style.top = `${Math.min(below, field.offsetHeight)}px`;
    list.hidden = false;
    choose(-1);
    told.textContent = `${found.length} completions; arrow keys choose, Enter takes one`;
  }

  function choose(index) {
    list.children[chosen]?.removeAttribute("aria-selected");
    chosen = index;
    const item = list.children[chosen];
    if (!item) return field.removeAttribute("aria-activedescendant");
    item.setAttribute("aria-selected", "true");
    item.scrollIntoView({ block: "nearest" });
    return field.setAttribute("aria-activedescendant", item.id);
  }

  function take(index) {
    const word = found[index].text;
    const end = field.selectionStart;
    field.setRangeText(word, end - typed().length, end, "end");
    close();
    field.focus();
    field.dispatchEvent(new Event("input", { bubbles: true }));
  }

  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(ask, WAIT_MS);
  });
  field.addEventListener("blur", close);
  field.addEventListener("keydown", (event) => {
    if (list.hidden) {
      if (event.key === " " && event.ctrlKey) {
        event.preventDefault();
        ask();
      }
      return;
    }
    const last = found.length - 1;
    if (event.key === "ArrowDown") choose(chosen === last ? 0 : chosen + 1);
    else if (event.key === "ArrowUp") choose(chosen <= 0 ? last : chosen - 1);
    else if ((event.key === "Enter" || event.key === "Tab") && chosen >= 0) take(chosen);
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
  });
}

for (const field of document.querySelectorAll("[data-complete]")) completionOf(field);
