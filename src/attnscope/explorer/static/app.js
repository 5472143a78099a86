// Finds the view that an address asks for and shows it; a newer address ends what an older one began.
import * as api from "./api.js";
import { fill, h, trouble } from "./dom.js";
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
const facts = new Map();
let current = { abort: new AbortController(), keys: {}, state: null };
let shown = null;

// A finished run stays as it is; another is asked anew each time.
async function factsOf(run, signal) {
  const found = await api.get(api.runPath(run), {}, signal);
  facts.set(run, found);
  return found;
}

function heldFacts(run) {
  return facts.get(run)?.status === "finished" ? facts.get(run) : null;
}

// What has the focus, to be given it again in a page that is built anew: the same control by its words.
function focusIn(main) {
  const words = (each) => each.getAttribute("aria-label") ?? each.closest("label")?.textContent ?? each.textContent;
  const held = document.activeElement;
  if (!held || held === main || !main.contains(held)) return () => {};
  const [tag, told] = [held.tagName, words(held)];
  return (built) => {
    const again = [...built.querySelectorAll(tag)].find((each) => words(each) === told);
    (again ?? built).focus({ preventScroll: true });
  };
}

function unfinished({ facts: held, refresh }) {
  return h(
    "p",
    { class: "note" },
    `This run is not finished (${held.status}): here is what is measured so far, of ${held.planned}. `,
    "The longest prompts come first, and conditions may not have the same ones yet. ",
    h("button", { type: "button", onclick: () => refresh() }, "Look again"),
  );
}

function tabs(state) {
  const bar = document.getElementById("tabs");
  document.getElementById("find-open").hidden = !state.run;
  document.getElementById("run-name").textContent = "";
  if (!state.run) {
    fill(
      bar,
      ...(shown?.live
        ? [h("a", { href: address(["try"]), "aria-current": state.view === "try" ? "page" : null }, "Try it")]
        : []),
    );
    return;
  }
  const held = facts.get(state.run);
  document.getElementById("run-name").textContent = state.run;
  const first = held?.models[0];
  const links = [
    ["overview", "Overview", [state.run]],
    ["map", "Map", [state.run, "map"]],
  ];
  if (first) {
    links.push(["head", "Head", [state.run, first.label, first.layers[0], first.heads[0]]]);
    links.push(["prompt", "Prompt", [state.run, "prompt", held.first_prompt]]);
    links.push(["compare", "Compare", [state.run, "compare"]]);
  }
  if (shown?.live) links.push(["try", "Try it", ["try"]]);
  fill(
    bar,
    ...links.map(([view, words, parts]) =>
      h("a", { href: address(parts), "aria-current": state.view === view ? "page" : null }, words),
    ),
  );
}

// While a key is held down, views fly past: only the one it rests on asks the server.
let hurried = false;

function calmed(signal) {
  if (!hurried) return Promise.resolve();
  return new Promise((resolve, reject) => {
    const waiting = setTimeout(resolve, 150);
    signal.addEventListener("abort", () => {
      clearTimeout(waiting);
      reject(new DOMException("a newer view is wanted", "AbortError"));
    });
  });
}

async function show() {
  current.abort.abort();
  document.getElementById("vg-tooltip-element")?.classList.remove("visible");
  const abort = new AbortController();
  const state = read();
  const calm = calmed(abort.signal);
  calm.catch(() => {}); // not every view waits for it
  const context = { abort, signal: abort.signal, keys: {}, state, refresh: show, calm };
  current = context;
  try {
    if (!shown) shown = await api.get("runs", {}, abort.signal);
    context.shown = shown;
    if (state.view === "runs") {
      shown = await api.get("runs", {}, abort.signal);
      if (shown.runs.length === 1 && !shown.live) {
        go(address([shown.runs[0].name]), { replace: true });
        show();
        return;
      }
      tabs(state);
      fill(main, runsView(shown));
    } else if (state.view === "try") {
      tabs(state);
      await tryView(main, context);
    } else {
      const view = Object.hasOwn(VIEWS, state.view) ? VIEWS[state.view] : null;
      if (!view) throw new Error(`there is no page '${state.view}'`);
      context.facts = heldFacts(state.run) ?? (await factsOf(state.run, abort.signal));
      tabs(state);
      const focused = focusIn(main);
      const shownNow = view(main, context); // builds the page at once, then asks for what is in it
      if (context.facts.status !== "finished") main.prepend(unfinished(context));
      focused(main);
      await shownNow;
    }
    document.title = [main.querySelector("h1")?.textContent, "attnscope"].filter(Boolean).join(" · ");
  } catch (error) {
    if (error.name === "AbortError" || abort.signal.aborted) return;
    tabs(state);
    fill(main, trouble(error), h("p", {}, h("a", { href: address([]) }, "All runs")));
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
    hurried = event.repeat;
    act();
    hurried = false;
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
