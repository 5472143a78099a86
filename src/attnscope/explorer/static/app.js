// Finds the view that an address asks for and shows it; a newer address stops what an older one began.
import * as api from "./api.js";
import { fill, h, problemBox } from "./dom.js";
import { openFind } from "./find.js";
import { address, go, read } from "./state.js";
import { compareView } from "./compare.js";
import { headView } from "./head.js";
import { mapView } from "./map.js";
import { overviewView, runsView } from "./overview.js";
import { promptView } from "./prompt.js";
import { tryView } from "./try.js";

const VIEWS = { overview: overviewView, map: mapView, head: headView, prompt: promptView, compare: compareView };
const main = document.getElementById("main");
const knownFacts = new Map();
let current = { abort: new AbortController(), keys: {}, state: null };
let runList = null;

// A finished run does not change; an unfinished one is requested again each time.
async function factsOf(run, signal) {
  if (knownFacts.get(run)?.status !== "finished") knownFacts.set(run, await api.get(api.runPath(run), {}, signal));
  return knownFacts.get(run);
}

// Remembers which control has the focus; the function it returns focuses the same control in the new page, by its label.
function focusIn(main) {
  const labelOf = (each) => each.getAttribute("aria-label") ?? each.closest("label")?.textContent ?? each.textContent;
  const focused = document.activeElement;
  if (!focused || focused === main || !main.contains(focused)) return () => {};
  const [tag, label] = [focused.tagName, labelOf(focused)];
  return (built) => {
    const again = [...built.querySelectorAll(tag)].find((each) => labelOf(each) === label);
    (again ?? built).focus({ preventScroll: true });
  };
}

function unfinished({ facts, refresh }) {
  return h(
    "p",
    { class: "note" },
    `This run is not finished (${facts.status}): you see what has been measured so far, of ${facts.planned}. `,
    "The longest prompts are measured first, and conditions may not have the same prompts yet. ",
    h("button", { type: "button", onclick: () => refresh() }, "Refresh"),
  );
}

function tabs(state) {
  const bar = document.getElementById("tabs");
  document.getElementById("find-open").hidden = !state.run;
  document.getElementById("run-name").textContent = "";
  if (!state.run) {
    fill(
      bar,
      ...(runList?.live
        ? [h("a", { href: address(["try"]), "aria-current": state.view === "try" ? "page" : null }, "Try it")]
        : []),
    );
    return;
  }
  const facts = knownFacts.get(state.run);
  document.getElementById("run-name").textContent = state.run;
  const first = facts?.models[0];
  const links = [
    ["overview", "Overview", [state.run]],
    ["map", "Map", [state.run, "map"]],
  ];
  if (first) {
    links.push(["head", "Head", [state.run, first.label, first.layers[0], first.heads[0]]]);
    links.push(["prompt", "Prompt", [state.run, "prompt", facts.first_prompt]]);
    links.push(["compare", "Compare", [state.run, "compare"]]);
  }
  if (runList?.live) links.push(["try", "Try it", ["try"]]);
  fill(
    bar,
    ...links.map(([view, label, parts]) =>
      h("a", { href: address(parts), "aria-current": state.view === view ? "page" : null }, label),
    ),
  );
}

// While a key is held down, views pass quickly: only the one where it stops requests anything.
let repeating = false;

function settled(signal) {
  if (!repeating) return Promise.resolve();
  return new Promise((resolve, reject) => {
    const waiting = setTimeout(resolve, 150);
    signal.addEventListener("abort", () => {
      clearTimeout(waiting);
      reject(new DOMException("replaced by a newer view", "AbortError"));
    });
  });
}

async function show() {
  current.abort.abort();
  document.getElementById("vg-tooltip-element")?.classList.remove("visible");
  const abort = new AbortController();
  const state = read();
  const calm = settled(abort.signal);
  calm.catch(() => {}); // not every view waits for it
  const context = { abort, signal: abort.signal, keys: {}, state, refresh: show, calm };
  current = context;
  try {
    if (!runList) runList = await api.get("runs", {}, abort.signal);
    context.runList = runList;
    if (state.view === "runs") {
      runList = await api.get("runs", {}, abort.signal);
      if (runList.runs.length === 1 && !runList.live) {
        go(address([runList.runs[0].name]), { replace: true });
        show();
        return;
      }
      tabs(state);
      fill(main, runsView(runList));
    } else if (state.view === "try") {
      tabs(state);
      await tryView(main, context);
    } else {
      const view = Object.hasOwn(VIEWS, state.view) ? VIEWS[state.view] : null;
      if (!view) throw new Error(`there is no page '${state.view}'`);
      context.facts = await factsOf(state.run, abort.signal);
      tabs(state);
      const restoreFocus = focusIn(main);
      const content = view(main, context); // builds the page at once, then requests its content
      if (context.facts.status !== "finished") main.prepend(unfinished(context));
      restoreFocus(main);
      await content;
    }
    document.title = [main.querySelector("h1")?.textContent, "attnscope"].filter(Boolean).join(" · ");
  } catch (error) {
    if (error.name === "AbortError" || abort.signal.aborted) return;
    tabs(state);
    fill(main, problemBox(error), h("p", {}, h("a", { href: address([]) }, "All runs")));
  }
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || link.hasAttribute("download"))
    return;
  const target = new URL(link.href, window.location.href);
  if (target.origin !== window.location.origin || link.getAttribute("href").startsWith("#")) return;
  event.preventDefault();
  go(target.pathname === "/" && !target.search ? address([]) : target.pathname + target.search);
  window.scrollTo(0, 0);
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest?.("input, select, textarea, dialog, [role=region]")) return;
  if (event.key === "Enter" && event.target.closest?.("a, button, summary")) return;
  if (event.key === "/") {
    event.preventDefault();
    openFind(current);
    return;
  }
  const act = current.keys[event.key];
  if (act) {
    event.preventDefault();
    repeating = event.repeat;
    act();
    repeating = false;
  }
});

document.getElementById("find-open").addEventListener("click", () => openFind(current));
window.addEventListener("popstate", show);
window.addEventListener("moved", show);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
let width = window.innerWidth;
let waiting = null;
window.addEventListener("resize", () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    if (Math.abs(window.innerWidth - width) > 40) {
      width = window.innerWidth;
      show();
    }
  }, 250);
});
show();
