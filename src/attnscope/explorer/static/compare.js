// Two heads side by side: the left one is pinned, the right one walks.
import * as api from "./api.js";
import { Figure, room } from "./charts.js";
import { form, headSteps, noted, numbers, selectModel } from "./controls.js";
import { fill, h, number, rate, select, table, trouble, withEnds } from "./dom.js";
import { address, chooser, conditionsOf, go, headAddress } from "./state.js";

function settings({ facts, state }) {
  const { one, notes } = chooser(state.query);
  const models = facts.models.map((each) => each.label);
  const groups = facts.queries.map((each) => each.name);
  const side = (name, start) => {
    const model = one(`${name}_model`, models, start.model);
    const held = facts.models.find((each) => each.label === model);
    const there = start.condition && held.conditions.includes(start.condition) ? start.condition : held.conditions[0];
    const near = (key, list) =>
      one(`${name}_${key}`, list.map(String), String(list.includes(start[key]) ? start[key] : list[0]));
    return {
      model,
      condition: one(`${name}_condition`, held.conditions, there),
      layer: Number(near("layer", held.layers)),
      head: Number(near("head", held.heads)),
    };
  };
  const left = side("left", { model: models[0] });
  const another = facts.conditions.map((each) => each.name).find((name) => name !== left.condition);
  return {
    chosen: { queries: one("queries", groups, groups[0]), left, right: side("right", { ...left, condition: another }) },
    notes,
  };
}

const place = ({ model, layer, head }) => ({ model, layer, head });

// Both in one picture, over the tokens they share; null if they have neither head nor condition in common.
function overlaid({ left, right, queries }) {
  const same = ["model", "layer", "head"].every((key) => left[key] === right[key]);
  const made = { name: "both", kind: "lines", form: "shared", queries };
  if (same && left.condition !== right.condition)
    return { ...made, conditions: [left.condition, right.condition], panels: [place(left)] };
  if (!same && left.condition === right.condition)
    return { ...made, conditions: [left.condition], panels: [{ ...place(left), also: [place(right)] }] };
  return null;
}

const flat = (name, side) => Object.fromEntries(Object.entries(side).map(([key, value]) => [`${name}_${key}`, value]));

export async function compareView(main, context) {
  const { facts, signal } = context;
  const { chosen, notes } = settings(context);
  const here = ({ left = {}, right = {}, queries = chosen.queries } = {}) =>
    address([facts.name, "compare"], {
      queries,
      ...flat("left", { ...chosen.left, ...left }),
      ...flat("right", { ...chosen.right, ...right }),
    });
  go(here(), { replace: true });
  const model = facts.models.find((each) => each.label === chosen.right.model);
  const walk = headSteps(context, model, chosen.right, (right) => here({ right }));
  const figures = ["left", "right"].map(() => ({
    lines: new Figure({ open: false, heading: "h4" }),
    bars: new Figure({ open: false, heading: "h4" }),
  }));
  const together = overlaid(chosen);
  const overlay = new Figure({ open: false });
  const pair = h("section", { "aria-label": "Difference" }, h("p", { class: "soft" }, "…"));
  const words = (side) => `layer ${side.layer} head ${side.head}`;
  fill(
    main,
    h("h1", {}, "Compare two heads"),
    noted(notes),
    form(select("Gaze of", facts.queries, chosen.queries, (queries) => go(here({ queries })))),
    h("p", { class: "soft hint" }, "The left one is pinned. Arrow keys walk the right one through layers and heads."),
    h(
      "div",
      { class: "two sides" },
      ["left", "right"].map((name, place) =>
        h(
          "section",
          { class: name, "aria-label": name },
          h(
            "h2",
            {},
            name === "left" ? "Pinned: " : "",
            h(
              "a",
              {
                href: headAddress(facts.name, chosen[name].model, chosen[name].layer, chosen[name].head, {
                  queries: chosen.queries,
                }),
              },
              words(chosen[name]),
            ),
          ),
          controls(facts, chosen[name], (change) => go(here({ [name]: change }))),
          name === "left"
            ? h(
                "p",
                {},
                h(
                  "button",
                  { type: "button", onclick: () => go(here({ left: chosen.right })) },
                  "Pin the right one instead",
                ),
              )
            : h("p", { class: "walk" }, walk),
          !together && figures[place].lines.element,
          figures[place].bars.element,
        ),
      ),
    ),
    together && h("section", { "aria-label": "Both along the prompt" }, overlay.element),
    pair,
  );
  const draw = async (figure, part, options) => {
    try {
      return await figure.show(facts.name, part, signal, options);
    } catch (error) {
      if (!signal.aborted) figure.fail(error);
      return null;
    }
  };
  // both sides on one scale
  const drawBoth = async (name, made) => {
    const drawn = await Promise.all(
      made.map((part) =>
        api
          .post(api.runPath(facts.name, "/figure"), part, { room: room(figures[0][name].chart) }, signal)
          .catch((error) => ({ error })),
      ),
    );
    const reach = Math.max(...drawn.map((each) => each.reach ?? 0));
    await Promise.all(
      drawn.map((each, place) => {
        if (each.error) return signal.aborted || figures[place][name].fail(each.error);
        return figures[place][name].draw(facts.name, made[place], each, signal, { reach });
      }),
    );
  };
  const told = async () => {
    try {
      const found = await api.get(
        api.runPath(facts.name, "/pair"),
        { queries: chosen.queries, ...flat("left", chosen.left), ...flat("right", chosen.right) },
        signal,
      );
      fill(
        pair,
        h("h2", {}, "Right minus left"),
        h("p", {}, found.facts.join(" ")),
        table(
          ["class", "left", "right", "difference", "q", "prompts"],
          found.rows.map((row) => [
            row.token_class,
            number(row.left),
            number(row.right),
            row.difference === null ? "" : withEnds(row.difference, row.low, row.high),
            rate(row.q),
            String(row.n),
          ]),
          { grayed: found.rows.map((row) => row.sure === false), caption: "Mass by class" },
        ),
      );
    } catch (error) {
      if (!signal.aborted) fill(pair, trouble(error));
    }
  };
  await context.calm;
  const sides = ["left", "right"].map((name) => ({
    name,
    side: chosen[name],
    shown: { conditions: [chosen[name].condition], queries: chosen.queries },
  }));
  const work = [
    told(),
    drawBoth(
      "bars",
      sides.map(({ name, side, shown }) => ({
        name: `${name}-bars`,
        kind: "bars",
        models: [side.model],
        layers: [side.layer],
        heads: [side.head],
        ...shown,
      })),
    ),
  ];
  if (together) work.push(draw(overlay, together));
  else
    work.push(
      drawBoth(
        "lines",
        sides.map(({ name, side, shown }) => ({
          name: `${name}-lines`,
          kind: "lines",
          form: "full",
          panels: [place(side)],
          ...shown,
        })),
      ),
    );
  await Promise.all(work);
}

function controls(facts, side, change) {
  const held = facts.models.find((each) => each.label === side.model);
  return form(
    selectModel(facts, side.model, (model) => change({ model })),
    select("Condition", conditionsOf(facts, side.model), side.condition, (condition) => change({ condition })),
    select("Layer", numbers(held.layers), String(side.layer), (layer) => change({ layer: Number(layer) })),
    select("Head", numbers(held.heads), String(side.head), (head) => change({ head: Number(head) })),
  );
}
