// A prompt's own text, shaded by the attention its tokens receive; another condition or model beside it.
import * as api from "./api.js";
import { downloads } from "./charts.js";
import { boxes, form, noted, numbers, otherOf, others, selectModel, steps } from "./controls.js";
import { fill, h, number, say, select, trouble, visible } from "./dom.js";
import { address, chooser, conditionsOf, go } from "./state.js";

const PART = 3000; // tokens that come at once

function settings({ facts, state }) {
  const query = state.query;
  const { one, notes } = chooser(query);
  const models = facts.models.map((each) => each.label);
  const model = one("model", models, models[0]);
  const conditions = conditionsOf(facts, model).map((each) => each.name);
  const held = facts.models.find((each) => each.label === model);
  const condition = one("condition", conditions, conditions[0]);
  const groups = facts.queries.map((each) => each.name);
  const layer = one("layer", held.layers.map(String), "");
  const head = one("head", held.heads.map(String), "");
  const known = [
    ...conditions.filter((each) => each !== condition).map((each) => `condition:${each}`),
    ...models.filter((each) => each !== model).map((each) => `model:${each}`),
  ];
  const classes = facts.classes.map((each) => each.name);
  const hide = query.getAll("hide").filter((each) => classes.includes(each));
  const queries = one("queries", groups, groups[0]);
  const first = /^\d+$/.test(query.get("first") ?? "") ? query.get("first") : "";
  return { chosen: { model, condition, queries, layer, head, beside: one("beside", known, ""), hide, first }, notes };
}

export async function promptView(main, context) {
  const { facts, signal, state } = context;
  const { chosen, notes } = settings(context);
  if (!Number.isInteger(state.prompt)) throw new Error(`there is no prompt '${state.prompt}'; they have numbers`);
  const number_ = state.prompt;
  const here = (changes = {}, prompt = number_) =>
    address([facts.name, "prompt", prompt], { ...chosen, ...(prompt === number_ ? {} : { first: "" }), ...changes });
  go(here(), { replace: true });
  const set = (name) => (value) =>
    go(here({ [name]: value, ...(chosen.beside === `${name}:${value}` ? { beside: "" } : {}) }));
  const held = facts.models.find((each) => each.label === chosen.model);
  const classes = facts.classes.map((each) => each.name);
  const mine = { model: chosen.model, condition: chosen.condition };
  const { kind, name } = otherOf(chosen.beside);
  const sides = chosen.beside ? [mine, { ...mine, [kind]: name }] : [mine];
  const every = { name: "", label: "mean of all" };
  const texts = h("div", {}, h("p", { class: "soft" }, "…"));
  const about = h("p", { class: "about" }, "Point at a token to see its numbers, or walk with the keys , and .");
  const turn = h("span", { class: "walk" });
  const condition = (name) => facts.conditions.find((each) => each.name === name).label;
  fill(
    main,
    h("h1", {}, `Prompt ${number_}`),
    h("p", {}, turn),
    noted(notes),
    form(
      facts.models.length > 1 && selectModel(facts, chosen.model, set("model")),
      select("Condition", conditionsOf(facts, chosen.model), chosen.condition, set("condition")),
      (facts.conditions.length > 1 || facts.models.length > 1) &&
        select("beside", others(facts, chosen), chosen.beside, set("beside")),
      select("Gaze of", facts.queries, chosen.queries, set("queries")),
      select("Layer", [every, ...numbers(held.layers)], chosen.layer, set("layer")),
      select("Head", [every, ...numbers(held.heads)], chosen.head, set("head")),
      boxes(
        "Shade classes",
        facts.classes,
        classes.filter((each) => !chosen.hide.includes(each)),
        (shaded) => go(here({ hide: classes.filter((each) => !shaded.includes(each)) })),
        (each) => swatch(each.colour),
      ),
    ),
    about,
    texts,
  );
  await context.calm;
  let found;
  try {
    found = await Promise.all(
      sides.map((side) =>
        api.get(
          api.runPath(facts.name, "/prompt"),
          {
            prompt: number_,
            ...side,
            queries: chosen.queries,
            layer: chosen.layer,
            head: chosen.head,
            first: chosen.first,
          },
          signal,
        ),
      ),
    );
  } catch (error) {
    if (!signal.aborted) fill(texts, trouble(error));
    return;
  }
  const [one] = found;
  main.querySelector("h1").textContent =
    one.name === String(one.number)
      ? `Prompt ${one.number}`
      : `Prompt ${one.number}: ${visible(one.name).slice(0, 80)}`;
  const other = (prompt) => (prompt === null ? null : here({}, prompt));
  fill(
    turn,
    steps(context, {
      ArrowLeft: { where: other(one.before), label: "the prompt before" },
      ArrowRight: { where: other(one.after), label: "the next prompt" },
    }),
    ` ${facts.prompts} ${facts.prompts === 1 ? "prompt" : "prompts"}. ${one.caption}`,
  );
  const marked = new Map();
  const walked = [];
  const panels = found.map((text) => shaded(text, facts, chosen, marked, about, found, walked));
  let at = -1;
  const along = (by) => () => walked[(at = Math.min(walked.length - 1, Math.max(0, at + by)))]?.();
  Object.assign(context.keys, { ".": along(1), ",": along(-1) });
  fill(
    texts,
    h(
      "div",
      { class: `texts ${found.length > 1 ? "pair" : ""}` },
      lined(panels, found, (side) => `${side.model}, ${condition(side.condition)}`),
    ),
    pages(found, here),
    h(
      "details",
      { class: "reading", open: true },
      h("summary", {}, "The reading"),
      found.map((text) => [
        h("h4", {}, `${text.model}, ${condition(text.condition)}`),
        h(
          "ul",
          {},
          text.reading.map((line) => h("li", {}, visible(line))),
        ),
      ]),
    ),
    h(
      "p",
      { class: "soft" },
      "The deepest shade is that of the second highest token; the highest has a frame. Each text has its own scale.",
    ),
    downloads(facts.name, strip(number_, sides, chosen)),
  );
}

// The same text as a figure of a study.
function strip(prompt, sides, chosen) {
  const every = (key) => [...new Set(sides.map((side) => side[key]))];
  return {
    name: `prompt-${prompt}`,
    kind: "strip",
    prompt,
    models: every("model"),
    conditions: every("condition"),
    queries: chosen.queries,
    ...(chosen.layer === "" ? {} : { layers: [Number(chosen.layer)] }),
    ...(chosen.head === "" ? {} : { heads: [Number(chosen.head)] }),
  };
}

function swatch(colour) {
  const made = h("span", { class: "swatch", "aria-hidden": "true" });
  if (colour) made.style.background = colour;
  return made;
}

// A long text comes in parts; the longer of two tells how many.
function pages(found, here) {
  const count = Math.max(...found.map((text) => text.count));
  const size = Math.max(...found.map((text) => text.tokens.length));
  const first = Math.max(...found.map((text) => text.first));
  if (count <= size) return null;
  return h(
    "p",
    {},
    `Tokens ${first} to ${first + size - 1} of ${count}. `,
    first > 0 && h("a", { href: here({ first: Math.max(0, first - PART) || "" }) }, "those before"),
    " ",
    first + size < count && h("a", { href: here({ first: first + size }) }, "those after"),
  );
}

// The tokens of one text, as elements, in runs of one segment.
function shaded(text, facts, chosen, marked, about, found, walked) {
  const runs = [];
  const colours = new Map(facts.classes.map((each) => [each.name, each.colour]));
  for (const token of text.tokens) {
    const hidden = token.classes.length > 0 && token.classes.every((name) => chosen.hide.includes(name));
    const element = h(
      "span",
      { class: "token", "data-side": found.indexOf(text), "data-position": token.position },
      shownText(token),
    );
    if (!hidden && token.attention !== null) {
      element.style.setProperty("--heat", String(Math.min(1, text.top > 0 ? token.attention / text.top : 0)));
      if (token.attention === text.highest) element.classList.add("highest");
    } else element.classList.add(token.attention === null ? "unseen" : "off");
    const colour = colours.get(token.classes.find((name) => name !== "other"));
    if (colour) element.style.setProperty("--class", colour);
    if (token.shared !== null) {
      if (!marked.has(token.shared)) marked.set(token.shared, []);
      marked.get(token.shared).push({ text, token, element });
    }
    const point = () => pointAt(text, token, element, marked, about, found);
    if (text === found[0]) walked.push(point);
    element.addEventListener("pointerenter", point);
    element.addEventListener("click", point);
    const last = runs.at(-1);
    const made = token.text.endsWith("\n") ? [element, "\n"] : [element]; // so that no frame reaches into the next line
    if (last && last.segment === token.segment) last.elements.push(...made);
    else runs.push({ segment: token.segment, elements: made });
  }
  return runs;
}

function shownText(token) {
  const text = visible(token.text).replace(/\n$/, "");
  return token.length > token.text.length ? `${text}… (${token.length.toLocaleString("en")} characters)` : text;
}

function pointAt(text, token, element, marked, about, found) {
  document.querySelectorAll(".token.pointed").forEach((each) => each.classList.remove("pointed"));
  element.classList.add("pointed");
  const told = [
    `${JSON.stringify(token.text.slice(0, 40))} at ${token.position}: ${token.attention === null ? "not seen by any query" : number(token.attention)}, ${token.segment}, ${token.classes.join(" and ")}`,
  ];
  if (found.length > 1) {
    const others = (marked.get(token.shared) ?? []).filter((each) => each.text !== text);
    for (const each of others) {
      each.element.classList.add("pointed");
      told.push(
        `${each.text.model}, ${each.text.condition}: ${number(each.token.attention)} at ${each.token.position}`,
      );
    }
    if (!others.length) told.push("not in the other");
  }
  about.textContent = told.join(" · ");
  say(about.textContent);
}

// Segments as rows, so that what both texts have stands side by side and an insertion has its own row.
function lined(panels, found, title) {
  const heads = found.map((text) => h("h2", {}, title(text)));
  const block = (run) =>
    run
      ? h(
          "div",
          { class: `segment ${run.segment === "inserted" ? "inserted" : ""}` },
          h("span", { class: "tag" }, run.segment),
          h("div", { class: "words", dir: "ltr" }, run.elements),
        )
      : h("div", { class: "segment none" });
  if (panels.length === 1) return [heads[0], panels[0].map(block)];
  const [left, right] = panels;
  const rows = [];
  let [one, two] = [0, 0];
  while (one < left.length || two < right.length) {
    const [mine, theirs] = [left[one], right[two]];
    if (mine && theirs && mine.segment === theirs.segment) rows.push([left[one++], right[two++]]);
    else if (mine && (!theirs || mine.segment === "inserted")) rows.push([left[one++], null]);
    else if (theirs && (!mine || theirs.segment === "inserted")) rows.push([null, right[two++]]);
    else rows.push([left[one++], right[two++]]);
  }
  return [...heads, ...rows.flatMap(([mine, theirs]) => [block(mine), block(theirs)])];
}
