// Elements from data. Text goes in as text and never as markup, so nothing a prompt holds can become part of the page.

export function h(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "value") made.value = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

// Puts children into an element, in place of what it has; what is not there is left out.
export function fill(element, ...children) {
  element.replaceChildren(
    ...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false),
  );
}

// A sentence of a reading: words, some of which stand out.
export function sentence(item) {
  return item.map(({ text, strong }) => (strong ? h("strong", {}, text) : text));
}

export function reading(sections, { open = true, title = "The reading" } = {}) {
  return h(
    "details",
    { class: "reading", open },
    h("summary", {}, title),
    sections.map((section) => [
      h("h4", {}, section.heading),
      h(
        "ul",
        {},
        section.items.map((item) => h("li", {}, sentence(item))),
      ),
    ]),
  );
}

export function select(label, options, chosen, change) {
  const made = h(
    "select",
    { onchange: (event) => change(event.target.value) },
    options.map(({ name, label: words }) => h("option", { value: name }, words)),
  );
  made.value = chosen;
  return h("label", {}, h("span", {}, label), made);
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

export function withEnds(value, low, high) {
  const signed = value > 0 ? `+${number(value)}` : number(value);
  return low === null || low === undefined ? signed : `${signed} (${number(low)} to ${number(high)})`;
}

export function rate(q) {
  if (q === null || q === undefined) return "";
  return q < 1e-4 ? "< 0.0001" : q.toPrecision(2);
}

export function trouble(error) {
  const told = error.told;
  return h(
    "div",
    { class: "trouble", role: "alert" },
    h("strong", {}, told ? told.what : String(error.message || error)),
    told && h("p", {}, `${told.where}: ${told.allowed}; ${told.todo}`),
  );
}

export function say(text) {
  document.getElementById("said").textContent = text;
}

// Characters that would not be seen, or would turn the text around, as signs.
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
  let made = "";
  for (const character of text) {
    const code = character.codePointAt(0);
    if (character === "\n") made += "⏎\n";
    else if (character === "\t") made += "⇥\t";
    else if (code < 0x20) made += String.fromCodePoint(0x2400 + code);
    else if (code === 0x7f) made += "␡";
    else if (NAMES[code]) made += `⟨${NAMES[code]}⟩`;
    else made += character;
  }
  return made;
}
