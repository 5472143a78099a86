// Elements from data. Text is inserted as text and never as markup, so nothing in a prompt can become part of the page.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...present(children));
  return element;
}

// Replaces the children of an element.
export function fill(element, ...children) {
  element.replaceChildren(...present(children));
}

function present(children) {
  return children.flat(3).filter((child) => child !== null && child !== undefined && child !== false);
}

// A sentence of a reading: words, some of which stand out.
export function sentence(item) {
  return item.map(({ text, strong }) => (strong ? h("strong", {}, text) : text));
}

export function reading(sections, { open = true, title = "Reading" } = {}) {
  return h(
    "details",
    { class: "reading", open },
    h("summary", {}, title),
    sections.map((section) => [
      h("h4", {}, section.heading),
      section.items.length > 0 &&
        h(
          "ul",
          {},
          section.items.map((item) => h("li", {}, sentence(item))),
        ),
      (section.tables ?? []).map(({ columns, rows, faint }) =>
        table(columns, rows, { grayed: faint, caption: section.heading }),
      ),
    ]),
  );
}

export function select(label, options, chosen, change) {
  const list = h(
    "select",
    { onchange: (event) => change(event.target.value) },
    options.map(({ name, label: text }) => h("option", { value: name }, text)),
  );
  list.value = chosen;
  return h("label", {}, h("span", {}, label), list);
}

export function table(columns, rows, { grayed = [], caption = null } = {}) {
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption || "table" },
    h(
      "table",
      {},
      caption && h("caption", {}, caption),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          columns.map((column) => h("th", { scope: "col" }, column)),
        ),
      ),
      h(
        "tbody",
        {},
        rows.map((row, place) =>
          h(
            "tr",
            { class: grayed[place] ? "gray" : null },
            row.map((cell) => h("td", {}, cell)),
          ),
        ),
      ),
    ),
  );
}

export function number(value) {
  if (value === null || value === undefined) return "";
  return value === 0 || Math.abs(value) >= 0.001 ? value.toFixed(4) : value.toExponential(2);
}

export function withInterval(value, low, high) {
  const signed = value > 0 ? `+${number(value)}` : number(value);
  return low === null || low === undefined ? signed : `${signed} (${number(low)} to ${number(high)})`;
}

export function rate(q) {
  if (q === null || q === undefined) return "";
  return q < 1e-4 ? "< 0.0001" : q.toPrecision(2);
}

export function problemBox(error) {
  const problem = error.problem;
  return h(
    "div",
    { class: "problem", role: "alert" },
    h("strong", {}, problem ? problem.what : String(error.message || error)),
    problem && h("p", {}, `${problem.where}: ${problem.allowed}; ${problem.todo}`),
  );
}

// For screen readers.
export function announce(text) {
  document.getElementById("announced").textContent = text;
}

// Characters that are invisible or change the direction of text, shown by name.
const NAMES = {
  0x061c: "ALM",
  0x200b: "ZWSP",
  0x200c: "ZWNJ",
  0x200e: "LRM",
  0x200f: "RLM",
  0x202a: "LRE",
  0x202b: "RLE",
  0x202c: "PDF",
  0x202d: "LRO",
  0x202e: "RLO",
  0x2066: "LRI",
  0x2067: "RLI",
  0x2068: "FSI",
  0x2069: "PDI",
  0xfeff: "BOM",
  0x2028: "LS",
  0x2029: "PS",
};

export function visible(text) {
  let shown = "";
  for (const character of text) {
    const code = character.codePointAt(0);
    if (character === "\n") shown += "⏎\n";
    else if (character === "\t") shown += "⇥\t";
    else if (code < 0x20) shown += String.fromCodePoint(0x2400 + code);
    else if (code === 0x7f) shown += "␡";
    else if (NAMES[code]) shown += `⟨${NAMES[code]}⟩`;
    else shown += character;
  }
  return shown;
}
