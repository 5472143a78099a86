// Charts as the server describes them, drawn by Vega without evaluating any code (the page's policy forbids that).
import * as api from "./api.js";
import { fill, h, reading, say, trouble } from "./dom.js";

let library = null;

function loaded() {
  library ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = "/static/vega.js";
    script.addEventListener("load", () => resolve(window.vegaEmbed));
    script.addEventListener("error", () => reject(new Error("the chart library can't be loaded")));
    document.head.append(script);
  });
  return library;
}

const dark = () => window.matchMedia("(prefers-color-scheme: dark)").matches;
const DARK = { black: "#e8e8e8", white: "#1b1e23", "#555555": "#b8b8b8", "#bdbdbd": "#4a4d52", "#999999": "#8a8a8a" };

function repainted(value, key = "") {
  if (key === "datasets" || key === "values") return value;
  if (Array.isArray(value)) return value.map((each) => repainted(each));
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, repainted(each, name)]));
  }
  return typeof value === "string" ? (DARK[value] ?? value) : value;
}

function reaching(value, reach, key = "") {
  if (key === "datasets" || key === "values" || !value || typeof value !== "object") return value;
  if (Array.isArray(value)) return value.map((each) => reaching(each, reach));
  const made = Object.fromEntries(Object.entries(value).map(([name, each]) => [name, reaching(each, reach, name)]));
  if (key === "encoding" && ["mass", "attention"].includes(made.y?.field))
    made.y = { ...made.y, scale: { ...made.y.scale, domainMax: reach } };
  return made;
}

function config() {
  const ink = dark() ? "#d5d8dd" : "#222222";
  const line = dark() ? "#3a3f47" : "#dddddd";
  const words = { labelColor: ink, titleColor: ink };
  return {
    background: "transparent",
    font: "system-ui, sans-serif",
    title: { color: ink, anchor: "start" },
    axis: { ...words, gridColor: line, domainColor: line, tickColor: line },
    legend: words,
    header: words,
    view: { stroke: line },
  };
}

export function room(container) {
  return Math.max(220, Math.min(1400, Math.floor(container.clientWidth || 800)));
}

// Ways to take a figure along. study: the lines that make it; asked for when they are wanted, if not given.
export function downloads(run, part, study = null) {
  const lines = h("textarea", { readonly: true, "aria-label": "Study lines" });
  const shown = h(
    "div",
    { class: "study-lines", hidden: true },
    h("p", {}, "Under figures: in a study file, these lines make this figure."),
    lines,
  );
  const unfold = async (event) => {
    const button = event.target;
    shown.hidden = !shown.hidden;
    button.setAttribute("aria-expanded", String(!shown.hidden));
    if (shown.hidden) return;
    study ??= (await api.post(api.runPath(run, "/figure"), part, { room: 800 })).study;
    lines.value = study;
    lines.rows = study.split("\n").length;
    lines.select();
  };
  const told = h("span", { class: "soft" });
  const tell = (words) => {
    told.textContent = words;
    say(words);
  };
  const button = (ending) =>
    h("button", { type: "button", onclick: () => save(run, part, ending, tell) }, ending.slice(1).toUpperCase());
  return h(
    "div",
    { class: "downloads" },
    h("span", { class: "soft" }, "Take it along: "),
    [".svg", ".png", ".csv"].map(button),
    h("button", { type: "button", "aria-expanded": "false", onclick: unfold }, "study line"),
    told,
    shown,
  );
}

async function save(run, part, ending, tell) {
  try {
    const blob = await api.file(api.runPath(run, "/figure/file"), part, { ending });
    const link = h("a", { href: URL.createObjectURL(blob), download: `${part.name}${ending}` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    tell(`saved ${part.name}${ending}`);
  } catch (error) {
    tell(`not saved: ${error.message}`);
  }
}

// One figure: the chart, its caption, its reading, and ways to take it along.
export class Figure {
  constructor({ click = null, heading = "h3", open = true } = {}) {
    this.click = click;
    this.open = open;
    this.title = h(heading, { class: "figure-title" });
    this.caption = h("p", { class: "caption" });
    this.canvas = h("div");
    this.chart = h("div", { class: "chart", role: "img" }, this.canvas); // the drawing tells nothing by itself
    this.more = h("div", { class: "more" });
    this.element = h("figure", { "aria-busy": "true" }, this.title, this.chart, this.caption, this.more);
    this.view = null;
  }

  // Returns what the server answered.
  async show(run, part, signal, options = {}) {
    this.element.setAttribute("aria-busy", "true");
    const drawn = await api.post(api.runPath(run, "/figure"), part, { room: room(this.chart) }, signal);
    await this.draw(run, part, drawn, signal, options);
    return drawn;
  }

  // reach: the upper end of the vertical scale, where two figures are to have the same.
  async draw(run, part, drawn, signal, { reach = null } = {}) {
    this.title.textContent = drawn.title;
    this.caption.textContent = drawn.caption;
    this.chart.setAttribute("aria-label", `${drawn.title}. ${drawn.caption}`);
    fill(this.more, downloads(run, part, drawn.study), reading(drawn.reading, { open: this.open }));
    const embed = await loaded();
    if (signal?.aborted) return;
    let description = { ...drawn.chart, description: undefined };
    if (reach !== null) description = reaching(description, reach);
    const result = await embed(this.canvas, dark() ? repainted(description) : description, {
      actions: false,
      ast: true,
      config: config(),
      defaultStyle: false,
      mode: "vega-lite",
      renderer: "svg",
      tooltip: { disableDefaultStyle: true, theme: dark() ? "dark" : "light" },
    });
    this.view?.finalize();
    this.view = result.view;
    if (this.click) {
      this.view.addEventListener("click", (event, item) => {
        if (item?.datum) this.click(item.datum, event);
      });
      this.chart.classList.add("clickable");
    }
    this.element.removeAttribute("aria-busy");
  }

  fail(error) {
    this.element.removeAttribute("aria-busy");
    fill(this.element, trouble(error));
  }

  // The drawn cell of a map that has these values, such as a layer and a head.
  cell(wanted) {
    for (const each of this.chart.querySelectorAll("path")) {
      const datum = each.__data__?.datum;
      if (datum?.value !== undefined && Object.entries(wanted).every(([key, value]) => datum[key] === value)) {
        return { each, datum };
      }
    }
    return null;
  }
}
