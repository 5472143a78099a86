// Charts as the server describes them, drawn by Vega without evaluating code (the page's policy forbids it).
import * as api from "./api.js";
import { announce, fill, h, problemBox, reading } from "./dom.js";

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

function recoloured(value, key = "") {
  if (key === "datasets" || key === "values") return value;
  if (Array.isArray(value)) return value.map((each) => recoloured(each));
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, recoloured(each, name)]));
  }
  return typeof value === "string" ? (DARK[value] ?? value) : value;
}

// The same chart with its vertical scale ending at `upper`.
function scaledTo(value, upper, key = "") {
  if (key === "datasets" || key === "values" || !value || typeof value !== "object") return value;
  if (Array.isArray(value)) return value.map((each) => scaledTo(each, upper));
  const scaled = Object.fromEntries(Object.entries(value).map(([name, each]) => [name, scaledTo(each, upper, name)]));
  if (key === "encoding" && ["mass", "attention"].includes(scaled.y?.field))
    scaled.y = { ...scaled.y, scale: { ...scaled.y.scale, domainMax: upper } };
  return scaled;
}

function config() {
  const ink = dark() ? "#d5d8dd" : "#222222";
  const line = dark() ? "#3a3f47" : "#dddddd";
  const text = { labelColor: ink, titleColor: ink };
  return {
    background: "transparent",
    font: "system-ui, sans-serif",
    title: { color: ink, anchor: "start" },
    axis: { ...text, gridColor: line, domainColor: line, tickColor: line },
    legend: text,
    header: text,
    view: { stroke: line },
  };
}

export function widthOf(container) {
  return Math.max(220, Math.min(1400, Math.floor(container.clientWidth || 800)));
}

// Ways to save a figure. study: the lines that draw it; requested when needed, if not given.
export function downloads(run, spec, study = null) {
  const lines = h("textarea", { readonly: true, "aria-label": "Study lines" });
  const shown = h(
    "div",
    { class: "study-lines", hidden: true },
    h("p", {}, "Add these lines under figures: in a study file to draw this figure."),
    lines,
  );
  const unfold = async (event) => {
    const button = event.target;
    shown.hidden = !shown.hidden;
    button.setAttribute("aria-expanded", String(!shown.hidden));
    if (shown.hidden) return;
    study ??= (await api.post(api.runPath(run, "/figure"), spec, { width: 800 })).study;
    lines.value = study;
    lines.rows = study.split("\n").length;
    lines.select();
  };
  const outcome = h("span", { class: "soft" });
  const report = (text) => {
    outcome.textContent = text;
    announce(text);
  };
  const button = (ending) =>
    h("button", { type: "button", onclick: () => save(run, spec, ending, report) }, ending.slice(1).toUpperCase());
  return h(
    "div",
    { class: "downloads" },
    h("span", { class: "soft" }, "Save as: "),
    [".svg", ".png", ".csv"].map(button),
    h("button", { type: "button", "aria-expanded": "false", onclick: unfold }, "study lines"),
    outcome,
    shown,
  );
}

async function save(run, spec, ending, report) {
  try {
    const blob = await api.file(api.runPath(run, "/figure/file"), spec, { ending });
    const link = h("a", { href: URL.createObjectURL(blob), download: `${spec.name}${ending}` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    report(`saved ${spec.name}${ending}`);
  } catch (error) {
    report(`not saved: ${error.message}`);
  }
}

// One figure: the chart, its caption, its reading, and ways to save it.
export class Figure {
  constructor({ click = null, heading = "h3", open = true } = {}) {
    this.click = click;
    this.open = open;
    this.title = h(heading, { class: "figure-title" });
    this.caption = h("p", { class: "caption" });
    this.canvas = h("div");
    this.chart = h("div", { class: "chart", role: "img" }, this.canvas); // the drawing itself says nothing to a screen reader
    this.more = h("div", { class: "more" });
    this.element = h("figure", { "aria-busy": "true" }, this.title, this.chart, this.caption, this.more);
    this.view = null;
  }

  // Returns the server's response.
  async show(run, spec, signal, options = {}) {
    this.element.setAttribute("aria-busy", "true");
    const drawn = await api.post(api.runPath(run, "/figure"), spec, { width: widthOf(this.chart) }, signal);
    await this.draw(run, spec, drawn, signal, options);
    return drawn;
  }

  // upper: the upper end of the vertical scale, if two figures share one.
  async draw(run, spec, drawn, signal, { upper = null } = {}) {
    this.title.textContent = drawn.title;
    this.caption.textContent = drawn.caption;
    this.chart.setAttribute("aria-label", `${drawn.title}. ${drawn.caption}`);
    fill(this.more, downloads(run, spec, drawn.study), reading(drawn.reading, { open: this.open }));
    const embed = await loaded();
    if (signal?.aborted) return;
    let description = { ...drawn.chart, description: undefined };
    if (upper !== null) description = scaledTo(description, upper);
    const result = await embed(this.canvas, dark() ? recoloured(description) : description, {
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
    fill(this.element, problemBox(error));
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
