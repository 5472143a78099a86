// A prompt's text, shaded by the attention its tokens receive; another condition or model beside it.
import * as api from "./api.js";
import { downloads } from "./charts.js";
import { boxes, form, noted, numbers, otherOf, others, selectModel, steps } from "./controls.js";
import { announce, fill, h, number, problemBox, select, visible } from "./dom.js";
import { address, choicesIn, conditionsOf, go } from "./state.js";

const PART = 3000; // tokens per response

function settings({ facts, state }) {
  const query = state.query;
  const { one, notes } = choicesIn(query);
  const models = facts.models.map((each) => each.label);
  const model = one("model", models, models[0]);
  const conditions = conditionsOf(facts, model).map((each) => each.name);
  const entry = facts.models.find((each) => each.label === model);
  const condition = one("condition", conditions, conditions[0]);
  const groups = facts.queries.map((each) => each.name);
  const layer = one("layer", entry.layers.map(String), "");
  const head = one("head", entry.heads.map(String), "");
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
  if (!Number.isInteger(state.prompt)) throw new Error(`there is no prompt '${state.prompt}'; prompts have numbers`);
  const number_ = state.prompt;
  const here = (changes = {}, prompt = number_) =>
    address([facts.name, "prompt", prompt], { ...chosen, ...(prompt === number_ ? {} : { first: "" }), ...changes });
  go(here(), { replace: true });
  const set = (name) => (value) =>
    go(here({ [name]: value, ...(chosen.beside === `${name}:${value}` ? { beside: "" } : {}) }));
  const entry = facts.models.find((each) => each.label === chosen.model);
  const classes = facts.classes.map((each) => each.name);
  const mine = { model: chosen.model, condition: chosen.condition };
  const { kind, name } = otherOf(chosen.beside);
  const sides = chosen.beside ? [mine, { ...mine, [kind]: name }] : [mine];
  const every = { name: "", label: "mean over all" };
  const texts = h("div", {}, h("p", { class: "soft" }, "…"));
  const about = h("p", { class: "about" }, "Point at a token to see its numbers, or step through tokens with the keys , and .");
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
      select("Attention from", facts.queries, chosen.queries, set("queries")),
      select("Layer", [every, ...numbers(entry.layers)], chosen.layer, set("layer")),
      select("Head", [every, ...numbers(entry.heads)], chosen.head, set("head")),
      boxes(
        "Shaded classes",
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
  let loadedTexts;
  try {
    loadedTexts = await Promise.all(
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
    if (!signal.aborted) fill(texts, problemBox(error));
    return;
  }
  const [one] = loadedTexts;
  main.querySelector("h1").textContent =
    one.name === String(one.number)
      ? `Prompt ${one.number}`
      : `Prompt ${one.number}: ${visible(one.name).slice(0, 80)}`;
  const other = (prompt) => (prompt === null ? null : here({}, prompt));
  fill(
    turn,
    steps(context, {
      ArrowLeft: { where: other(one.previous), label: "previous prompt" },
      ArrowRight: { where: other(one.next), label: "next prompt" },
    }),
    ` ${facts.prompts} ${facts.prompts === 1 ? "prompt" : "prompts"}. ${one.caption}`,
  );
  const counterparts = new Map(); // by the key that the same token has in every text
  const pointers = [];
  const panels = loadedTexts.map((text) => shaded(text, facts, chosen, counterparts, about, loadedTexts, pointers));
  let at = -1;
  const along = (by) => () => pointers[(at = Math.min(pointers.length - 1, Math.max(0, at + by)))]?.();
  Object.assign(context.keys, { ".": along(1), ",": along(-1) });
  fill(
    texts,
    h(
      "div",
      { class: `texts ${loadedTexts.length > 1 ? "pair" : ""}` },
      lined(panels, loadedTexts, (side) => `${side.model}, ${condition(side.condition)}`),
    ),
    pages(loadedTexts, here),
    h(
      "details",
      { class: "reading", open: true },
      h("summary", {}, "Reading"),
      loadedTexts.map((text) => [
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
      "The darkest shade is the second highest token; the highest has a frame. Each text has its own scale.",
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
  const element = h("span", { class: "swatch", "aria-hidden": "true" });
  if (colour) element.style.background = colour;
  return element;
}

// A long text is shown in parts; the longer of two decides how many.
function pages(texts, here) {
  const count = Math.max(...texts.map((text) => text.count));
  const size = Math.max(...texts.map((text) => text.tokens.length));
  const first = Math.max(...texts.map((text) => text.first));
  if (count <= size) return null;
  return h(
    "p",
    {},
    `Tokens ${first} to ${first + size - 1} of ${count}. `,
    first > 0 && h("a", { href: here({ first: Math.max(0, first - PART) || "" }) }, "previous"),
    " ",
    first + size < count && h("a", { href: here({ first: first + size }) }, "next"),
  );
}

// The tokens of one text, as elements, grouped by segment.
function shaded(text, facts, chosen, counterparts, about, texts, pointers) {
  const blocks = [];
  const colours = new Map(facts.classes.map((each) => [each.name, each.colour]));
  for (const token of text.tokens) {
    const hidden = token.classes.length > 0 && token.classes.every((name) => chosen.hide.includes(name));
    const element = h(
      "span",
      { class: "token", "data-side": texts.indexOf(text), "data-position": token.position },
      shownText(token),
    );
    if (!hidden && token.attention !== null) {
      element.style.setProperty("--heat", String(Math.min(1, text.top > 0 ? token.attention / text.top : 0)));
      if (token.attention === text.highest) element.classList.add("highest");
    } else element.classList.add(token.attention === null ? "unseen" : "off");
    const colour = colours.get(token.classes.find((name) => name !== "other"));
    if (colour) element.style.setProperty("--class", colour);
    if (token.shared !== null) {
      if (!counterparts.has(token.shared)) counterparts.set(token.shared, []);
      counterparts.get(token.shared).push({ text, token, element });
    }
    const point = () => pointAt(text, token, element, counterparts, about, texts);
    if (text === texts[0]) pointers.push(point);
    element.addEventListener("pointerenter", point);
    element.addEventListener("click", point);
    const last = blocks.at(-1);
    const nodes = token.text.endsWith("\n") ? [element, "\n"] : [element]; // so that no frame extends into the next line
    if (last && last.segment === token.segment) last.elements.push(...nodes);
    else blocks.push({ segment: token.segment, elements: nodes });
  }
  return blocks;
}

function shownText(token) {
  const text = visible(token.text).replace(/\n$/, "");
  return token.length > token.text.length ? `${text}… (${token.length.toLocaleString("en")} characters)` : text;
}

function pointAt(text, token, element, counterparts, about, texts) {
  document.querySelectorAll(".token.pointed").forEach((each) => each.classList.remove("pointed"));
  element.classList.add("pointed");
  const parts = [
    `${JSON.stringify(token.text.slice(0, 40))} at ${token.position}: ${token.attention === null ? "not seen by any query" : number(token.attention)}, ${token.segment}, ${token.classes.join(" and ")}`,
  ];
  if (texts.length > 1) {
    const others = (counterparts.get(token.shared) ?? []).filter((each) => each.text !== text);
    for (const each of others) {
      each.element.classList.add("pointed");
      parts.push(
        `${each.text.model}, ${each.text.condition}: ${number(each.token.attention)} at ${each.token.position}`,
      );
    }
    if (!others.length) parts.push("not in the other text");
  }
  about.textContent = parts.join(" · ");
  announce(about.textContent);
}

// Segments as rows, so that what both texts share is side by side and an insertion has its own row.
function lined(panels, texts, title) {
  const titles = texts.map((text) => h("h2", {}, title(text)));
  const block = (part) =>
    part
      ? h(
          "div",
          { class: `segment ${part.segment === "inserted" ? "inserted" : ""}` },
          h("span", { class: "tag" }, part.segment),
          h("div", { class: "words", dir: "ltr" }, part.elements),
        )
      : h("div", { class: "segment none" });
  if (panels.length === 1) return [titles[0], panels[0].map(block)];
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
  return [...titles, ...rows.flatMap(([mine, theirs]) => [block(mine), block(theirs)])];
}
