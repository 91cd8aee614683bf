"use strict";
// --- figures: each is drawn when it is scrolled near -----------------------------------------------------------

const figures = document.getElementById("figures").textContent;
const darkColours = JSON.parse(document.getElementById("dark").textContent);
const dark = window.matchMedia("(prefers-color-scheme: dark)");
let ofScheme = inScheme();

/** The figures in the colours of the scheme: light ones are written in them, and a table has each one's dark colour. */
function inScheme() {
  if (!dark.matches) return JSON.parse(figures);
  return JSON.parse(figures.replace(/"#[0-9a-f]{6}"/g, (colour) => JSON.stringify(darkColours[JSON.parse(colour)] ?? JSON.parse(colour))));
}

const buttons = [["toImage", "zoom2d", "pan2d", "resetScale2d"]];

async function unpack(element) {
  const bytes = Uint8Array.from(atob(element.textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(stream).text();
  document.head.append(script);
  element.remove();
}

function draw(target) {
  const figure = ofScheme[target.dataset.figure];
  const small = target.closest(".grid") !== null || window.matchMedia("(max-width: 720px)").matches;
  const configuration = { responsive: true, displaylogo: false, displayModeBar: small ? false : "hover" };
  if (figure.data[0].type === "parcoords") configuration.modeBarButtons = [["toImage"]];
  else configuration.modeBarButtons = buttons;
  const clear = "rgba(0, 0, 0, 0)";
  Plotly.newPlot(target, figure.data, { ...figure.layout, paper_bgcolor: clear, plot_bgcolor: clear }, configuration);
}

dark.addEventListener("change", () => {
  ofScheme = inScheme();
  document.querySelectorAll(".js-plotly-plot").forEach(draw);
});

const ready = unpack(document.getElementById("plotly"));
const near = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) {
        near.unobserve(entry.target);
        ready.then(() => draw(entry.target));
      }
    }
  },
  { rootMargin: "600px" },
);
for (const target of document.querySelectorAll("[data-figure]")) near.observe(target);

for (const tab of document.querySelectorAll("[data-shows]")) {
  tab.addEventListener("click", () => {
    for (const other of tab.parentElement.children) {
      other.setAttribute("aria-selected", String(other === tab));
      document.getElementById(`at-${other.dataset.shows}`).hidden = other !== tab;
    }
  });
}

// --- table: rows are added in parts -------------------------------------------------------------

const PART = 100;
const table = JSON.parse(document.getElementById("rows").textContent);
const best = new Set(table.best);
const words = table.rows.map((row) => row.map((cell) => cell ?? "").join(" ").toLowerCase());
let column = 2;
let ascending = table.ascending;
let shown = PART;
let order = [];

function compare(one, other) {
  const [a, b] = [table.rows[one][column], table.rows[other][column]];
  if (a === null || b === null) return (a === null) - (b === null); // no value comes last
  const way = ascending ? 1 : -1;
  if (typeof a === "number" && typeof b === "number") return way * (a - b);
  return way * String(a).localeCompare(String(b), undefined, { numeric: true });
}

function arrange() {
  const wanted = document.querySelector("input[type=search]").value.toLowerCase().split(/\s+/).filter(Boolean);
  order = table.rows.map((_, index) => index).filter((index) => wanted.every((word) => words[index].includes(word)));
  order.sort(compare);
  fill();
}

function text(cell) {
  if (cell === null) return "";
  return typeof cell === "number" && !Number.isInteger(cell) ? String(Number(cell.toPrecision(5))) : String(cell);
}

function fill() {
  const body = document.querySelector("#table tbody");
  body.replaceChildren(
    ...order.slice(0, shown).map((index) => {
      const line = document.createElement("tr");
      line.classList.toggle("best", best.has(table.rows[index][0]));
      table.rows[index].forEach((cell, place) => {
        const data = line.insertCell();
        data.textContent = text(cell);
        data.title = cell === null ? "" : String(cell);
        if (place === 0 && table.runs) {
          const link = document.createElement("a");
          link.href = table.runs + table.ids[index];
          link.textContent = text(cell);
          data.replaceChildren(link);
        }
        if (place === 1) {
          const dot = document.createElement("span");
          dot.className = `dot ${cell}`;
          data.prepend(dot);
        }
      });
      return line;
    }),
  );
  document.getElementById("more").hidden = shown >= order.length;
  document.getElementById("count").textContent =
    order.length === table.rows.length ? `${order.length} trials` : `${order.length} of ${table.rows.length} trials`;
  document.querySelectorAll("#table th").forEach((head, place) => {
    if (place === column) head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    else head.removeAttribute("aria-sort");
  });
}

// A text that a spreadsheet would take for a formula begins with an apostrophe.
function quoted(cell) {
  const text = String(cell ?? "");
  const shown = typeof cell === "string" && /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
  return /[",\n\r]/.test(shown) ? `"${shown.replaceAll('"', '""')}"` : shown;
}

function csv() {
  const lines = [table.columns, ...order.map((index) => table.rows[index])].map((row) => row.map(quoted).join(","));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "text/csv" }));
  link.download = `${table.name}.csv`;
  link.click();
}

const heads = document.querySelector("#table thead").insertRow();
table.names.forEach((name, place) => {
  const head = document.createElement("th");
  head.textContent = name;
  head.title = table.columns[place];
  head.tabIndex = 0;
  const sort = () => {
    ascending = place === column ? !ascending : true;
    column = place;
    arrange();
  };
  head.addEventListener("click", sort);
  head.addEventListener("keydown", (event) => {
    if (event.key === "Enter") sort();
  });
  heads.append(head);
});
document.querySelector("input[type=search]").addEventListener("input", () => {
  shown = PART;
  arrange();
});
document.getElementById("csv").addEventListener("click", csv);
document.getElementById("more").addEventListener("click", () => {
  shown += 10 * PART;
  fill();
});
arrange();
