// Two heads side by side: the left one is pinned, the right one walks.
import * as api from "./api.js";
import { Figure, widthOf } from "./charts.js";
import { form, headSteps, noted, numbers, selectModel } from "./controls.js";
import { fill, h, number, rate, select, table, problemBox, withInterval } from "./dom.js";
import { address, choicesIn, conditionsOf, go, headAddress } from "./state.js";

function settings({ facts, state }) {
  const { one, notes } = choicesIn(state.query);
  const models = facts.models.map((each) => each.label);
  const groups = facts.queries.map((each) => each.name);
  const side = (name, start) => {
    const model = one(`${name}_model`, models, start.model);
    const entry = facts.models.find((each) => each.label === model);
    const condition = start.condition && entry.conditions.includes(start.condition) ? start.condition : entry.conditions[0];
    const near = (key, list) =>
      one(`${name}_${key}`, list.map(String), String(list.includes(start[key]) ? start[key] : list[0]));
    return {
      model,
      condition: one(`${name}_condition`, entry.conditions, condition),
      layer: Number(near("layer", entry.layers)),
      head: Number(near("head", entry.heads)),
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

// Both in one chart, over the tokens they share; null if they have neither head nor condition in common.
function overlaid({ left, right, queries }) {
  const same = ["model", "layer", "head"].every((key) => left[key] === right[key]);
  const spec = { name: "both", kind: "lines", form: "shared", queries };
  if (same && left.condition !== right.condition)
    return { ...spec, conditions: [left.condition, right.condition], panels: [place(left)] };
  if (!same && left.condition === right.condition)
    return { ...spec, conditions: [left.condition], panels: [{ ...place(left), also: [place(right)] }] };
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
  const label = (side) => `layer ${side.layer} head ${side.head}`;
  fill(
    main,
    h("h1", {}, "Compare two heads"),
    noted(notes),
    form(select("Attention from", facts.queries, chosen.queries, (queries) => go(here({ queries })))),
    h("p", { class: "soft hint" }, "The left head is pinned. Use the arrow keys to move the right one through layers and heads."),
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
              label(chosen[name]),
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
                  "Pin the right head instead",
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
  const draw = async (figure, spec, options) => {
    try {
      return await figure.show(facts.name, spec, signal, options);
    } catch (error) {
      if (!signal.aborted) figure.fail(error);
      return null;
    }
  };
  // both sides on the same scale
  const drawBoth = async (name, specs) => {
    const drawn = await Promise.all(
      specs.map((spec) =>
        api
          .post(api.runPath(facts.name, "/figure"), spec, { width: widthOf(figures[0][name].chart) }, signal)
          .catch((error) => ({ error })),
      ),
    );
    const upper = Math.max(...drawn.map((each) => each.upper ?? 0));
    await Promise.all(
      drawn.map((each, place) => {
        if (each.error) return signal.aborted || figures[place][name].fail(each.error);
        return figures[place][name].draw(facts.name, specs[place], each, signal, { upper });
      }),
    );
  };
  const showPair = async () => {
    try {
      const difference = await api.get(
        api.runPath(facts.name, "/pair"),
        { queries: chosen.queries, ...flat("left", chosen.left), ...flat("right", chosen.right) },
        signal,
      );
      fill(
        pair,
        h("h2", {}, "Right minus left"),
        h("p", {}, difference.facts.join(" ")),
        table(
          ["class", "left", "right", "difference", "q", "prompts"],
          difference.rows.map((row) => [
            row.token_class,
            number(row.left),
            number(row.right),
            row.difference === null ? "" : withInterval(row.difference, row.low, row.high),
            rate(row.q),
            String(row.n),
          ]),
          { grayed: difference.rows.map((row) => row.significant === false), caption: "Mass by class" },
        ),
      );
    } catch (error) {
      if (!signal.aborted) fill(pair, problemBox(error));
    }
  };
  await context.calm;
  const sides = ["left", "right"].map((name) => ({
    name,
    side: chosen[name],
    common: { conditions: [chosen[name].condition], queries: chosen.queries },
  }));
  const work = [
    showPair(),
    drawBoth(
      "bars",
      sides.map(({ name, side, common }) => ({
        name: `${name}-bars`,
        kind: "bars",
        models: [side.model],
        layers: [side.layer],
        heads: [side.head],
        ...common,
      })),
    ),
  ];
  if (together) work.push(draw(overlay, together));
  else
    work.push(
      drawBoth(
        "lines",
        sides.map(({ name, side, common }) => ({
          name: `${name}-lines`,
          kind: "lines",
          form: "full",
          panels: [place(side)],
          ...common,
        })),
      ),
    );
  await Promise.all(work);
}

function controls(facts, side, change) {
  const entry = facts.models.find((each) => each.label === side.model);
  return form(
    selectModel(facts, side.model, (model) => change({ model })),
    select("Condition", conditionsOf(facts, side.model), side.condition, (condition) => change({ condition })),
    select("Layer", numbers(entry.layers), String(side.layer), (layer) => change({ layer: Number(layer) })),
    select("Head", numbers(entry.heads), String(side.head), (head) => change({ head: Number(head) })),
  );
}
